"""Training on rented machines through parameter servers: how fast a fleet is, when its loss is reached, what to rent.

``speed`` and ``loss`` are spotDNN's equations and what goes beyond them, ``fleet`` chooses by both, ``risk`` says
what revocations do, ``holding`` when to be on spot at all, ``pool`` what may be rented. Above them: ``planning`` from
a profile, ``venturing`` with revocations, ``takeover`` after one. Pure; numbers in, records out.
"""
