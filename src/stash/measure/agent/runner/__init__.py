"""Runs the ladder's blocks inside the training loop."""
