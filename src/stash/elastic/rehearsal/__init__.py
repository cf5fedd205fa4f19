"""Plays an asynchronous training of a plan here, machines taken away and replaced, and keeps the account."""
