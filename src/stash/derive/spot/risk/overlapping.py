"""Means and shares over runs that are not independent: windows of one record overlap.

A record that is as long as three runs holds three of them beside each other, however many begin at some tick of it.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from stash.base.stats.intervals import Interval, mean_interval
from stash.derive.predict.uncertainty.draws import Array

LEAST = 2.0
"""Independent runs from which on there is an interval."""
_Z = 1.959964


def mean_of(values: Array, independent: float) -> Interval:
    """The mean of ``values``, of which so many are independent, and its 95 % interval: unknown below two."""
    found = mean_interval(values.tolist())
    if independent < LEAST or found.half_width is None:
        return Interval(value=found.value, repetitions=len(values))
    arm = found.half_width * math.sqrt(len(values) / min(independent, len(values)))
    return Interval(value=found.value, low=found.value - arm, high=found.value + arm, repetitions=len(values))


def share_of(happened: npt.NDArray[np.bool_], independent: float) -> Interval:
    """In how many it ``happened``, as a fraction, and Wilson's 95 % interval (JASA 22, 1927): unknown below two."""
    share, count = float(happened.mean()), min(independent, len(happened))
    if count < LEAST:
        return Interval(value=share, repetitions=len(happened))
    middle = (share + _Z**2 / (2 * count)) / (1 + _Z**2 / count)
    arm = _Z / (1 + _Z**2 / count) * math.sqrt(share * (1 - share) / count + (_Z / (2 * count)) ** 2)
    low = 0.0 if share == 0 else middle - arm  # which it is, but for rounding
    high = 1.0 if share == 1 else middle + arm
    return Interval(value=share, low=low, high=high, repetitions=len(happened))
