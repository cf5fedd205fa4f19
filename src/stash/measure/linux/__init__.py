"""What the Linux kernel tells of a machine and its processes, for the agent, the host's description and the probe."""
