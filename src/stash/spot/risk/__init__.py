"""What revocations do to a plan: lifetimes, checkpoints, replacing who is gone."""
