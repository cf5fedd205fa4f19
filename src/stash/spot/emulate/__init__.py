"""Rehearses a fleet here or on emulated hosts, and takes workers away."""
