"""Evidence that Stash did not record: traces of profilers, dumps of flight recorders."""
