"""How fast a fleet is: spotDNN's contention, the queueing network beyond it, and both held against timed runs."""
