"""Probabilities from draws: how sure a limit is kept, and the number that is not exceeded so surely.

Draws are equally probable. Knows neither what they are of nor what they cost.
"""

from __future__ import annotations

import math

import numpy as np

from stash.derive.predict.uncertainty.draws import Array


def kept(drawn: Array, limit: float | None) -> float | None:
    """The share of draws that do not exceed ``limit``; ``None`` without one."""
    return None if limit is None else float(np.count_nonzero(drawn <= limit) / len(drawn))


def surely(drawn: Array, confidence: float) -> Array:
    """The least limit that is kept with this probability: ``kept(drawn, limit) >= confidence`` from here on.

    Of draws along the last axis, which goes.
    """
    needed = math.ceil(confidence * drawn.shape[-1] - 1e-9)
    least: Array = np.partition(drawn, needed - 1, axis=-1)[..., needed - 1]
    return least


def apart(difference: Array, outside: float = 0.025) -> bool:
    """Whether the middle of the draws, all but ``outside`` of them at either end, lies on one side of zero."""
    beyond = int(outside * len(difference))
    ordered = np.sort(difference)
    return bool(ordered[beyond] > 0 or ordered[-1 - beyond] < 0)
