"""Replays fleets on one device in virtual time, and fits how the loss falls."""
