"""What revocations do to a fleet: how long machines live, what each loss costs, and how likely the plan holds."""
