"""``stash spot`` and its commands."""
