"""``stash spot``: one module a command."""
