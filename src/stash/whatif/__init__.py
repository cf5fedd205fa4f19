"""``stash whatif``: a forecast for one change or a sweep, what limits it, and what suffices."""
