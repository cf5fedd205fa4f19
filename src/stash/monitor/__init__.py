"""Watching a training run: stalls and stragglers while it lasts, changes as they begin and end, its bill."""
