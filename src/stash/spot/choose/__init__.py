"""Which fleet to rent: the exact choice, and how others choose."""
