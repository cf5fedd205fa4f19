"""When a loss is reached: the forms of the curve, fitted to replays, and which fleets to replay for that."""
