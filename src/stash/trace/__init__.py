"""Evidence that Stash did not record: traces of profilers, flight recorders, Nsight exports."""
