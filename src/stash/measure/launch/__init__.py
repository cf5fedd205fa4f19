"""Starting the profiled job: a run is described as a ``Request`` first, then started and watched."""
