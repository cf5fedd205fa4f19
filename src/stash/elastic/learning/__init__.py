"""How a job's loss falls, learned on one device: fleets replayed in virtual time."""
