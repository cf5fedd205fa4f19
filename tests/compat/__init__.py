"""Real projects under ``stash profile``: ``make compat`` prints the table of docs/compatibility.md."""
