"""What to rent when machines are gone: who is left, what could be added, what does it by the deadline."""
