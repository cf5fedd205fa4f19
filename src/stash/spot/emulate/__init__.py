"""Rehearses a fleet on this machine, and takes workers away."""
