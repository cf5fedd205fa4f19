"""The ``stash`` command: gathers the features' commands, prints errors, picks exit codes."""
