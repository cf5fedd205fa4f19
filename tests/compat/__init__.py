"""Real projects under ``stash profile``: ``python -m tests.compat`` prints the table of docs/compatibility.md."""
