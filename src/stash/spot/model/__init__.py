"""How fast a fleet trains and how its loss falls: spotDNN's equations, a queueing network, their fits."""
