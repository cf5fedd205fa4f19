"""Real projects under ``stash profile``: ``make compat`` prints the table that docs/compatibility.md sums up."""
