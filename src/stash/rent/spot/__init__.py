"""Runs a fleet plan on rented machines, through SkyPilot's YAML and command, and leaves nothing running."""
