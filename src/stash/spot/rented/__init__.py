"""Rents a fleet plan, replaces who is taken away, and leaves nothing running."""
