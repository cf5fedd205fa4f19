"""What ``stash fix`` promises against what its patch brings, on jobs with a planted fault."""
