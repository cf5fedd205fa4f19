"""This machine in place of a fleet: how slow it must play, and the processes that it started for it."""
