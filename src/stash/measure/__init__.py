"""Everything that touches a running machine: the launcher, the agent inside the job, what a host is and can do."""
