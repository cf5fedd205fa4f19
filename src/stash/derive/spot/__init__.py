"""Training on rented machines through parameter servers: how fast a fleet is, when its loss is reached, what to rent.

``sharing``, ``progress`` and ``convergence`` are spotDNN's equations, ``queueing`` the network beyond them,
``fitting`` and ``predicting`` hold both against runs, ``learning`` has loss curves from replays, ``planning`` a pool
from a profile, and the rest chooses. Pure; numbers in, records out.
"""
