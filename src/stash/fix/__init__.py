"""``stash fix``: changes tried on the user's own script, proven to save time, and handed over as a patch."""
