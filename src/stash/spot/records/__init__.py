"""What spot training saves: fleets and plans, logs and curves, risks."""
