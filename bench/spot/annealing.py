"""A black box that knows no structure, only what a fleet costs: simulated annealing over counts of machines.

As provisioners without a model of what they search have it (Srifty, MLSys 2022, searches so). Here to be held
against the exact search, by how many fleets it has to weigh.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from stash.predict.draws import Array

_HOT, _COLD = 0.3, 1e-3
"""Temperatures as fractions of a fleet's cost."""


def anneal(
    quotas: Sequence[int], cost: Callable[[Array], float], evaluations: int, seed: int = 17
) -> tuple[Array | None, list[float]]:
    """(best counts, cost of the best so far after each evaluation); ``cost`` is infinite where a fleet will not do.

    A step adds a machine, drops one, or swaps one for another; what will not do is never gone to from what does.
    """
    draw = np.random.default_rng(seed)
    most = np.array(quotas, dtype=float)
    here = most.copy()
    value = cost(here)
    best, course = (here, [value])
    for number in range(1, evaluations):
        heat = _HOT * (_COLD / _HOT) ** (number / evaluations)
        there = _neighbour(here, most, draw)
        new = cost(there)
        if new <= value or (0 < value < math.inf and draw.random() < math.exp(-min(new / value - 1, 700.0) / heat)):
            here, value = there, new
        if new < course[-1]:
            best = there
        course.append(min(course[-1], new))
    return (best if math.isfinite(course[-1]) else None), course


def _neighbour(here: Array, most: Array, draw: np.random.Generator) -> Array:
    """Another fleet within quotas, with one worker at least."""
    while True:
        there: Array = here.copy()
        for change in ((1, -1), (1,), (-1,))[draw.integers(3)]:
            there[draw.integers(len(here))] += change
        if (there >= 0).all() and (there <= most).all() and there.any() and (there != here).any():
            return there
        if most.sum() <= 1:
            return here
