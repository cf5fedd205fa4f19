"""How long the slowest of several ranks takes: that of the rank which is slowest on average, told apart from luck.

Knows matrices of step times, ``times[round, rank]`` in seconds. The largest of many noisy means lies above all true
ones, even of equal ranks: by 3 % of a step for 64 ranks, five rounds and noise of 3 %. So a rank counts as the
slowest only as far as the rounds tell it from the others. Knows nothing of rungs, nor why a rank is slow.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

BEYOND_LUCK = 1.5
"""Standard errors beyond the √(2 ln R) that the luckiest of R equal ranks reaches."""

_DRAWN = 0.75
"""Power of the true share of the variance: chosen so that 2 to 64 ranks, equal or not, are covered alike."""


def slowest(times: Matrix) -> Matrix:
    """Round by round, the time of the rank that is slowest on average.

    If the largest mean stands out, it is that rank's own time. Else the ranks are drawn towards their common time. By
    the share of luck in the variance of their means (James and Stein) the largest becomes too small; by its root,
    which leaves as much variance as true means have (constrained empirical Bayes, Louis 1984), equal ranks keep some
    of their luck. ``_DRAWN`` lies between. What that rank's time varies by is drawn by the root, as it is uncertain
    by that much. After a single round luck is unknown, and the largest time it is.
    """
    rounds, ranks = times.shape
    top = int(np.argmax(times.mean(axis=0)))
    if rounds == 1 or ranks == 1 or stands_out(times):
        return times[:, top]
    common, found = times.mean(axis=1), float(times.mean(axis=0).var(ddof=1))
    real = max(0.0, 1 - _luck(times) ** 2 / found) if found > 0 else 0.0
    apart = times[:, top] - common
    drawn: Matrix = common + real**_DRAWN * apart.mean() + math.sqrt(real) * (apart - apart.mean())
    return drawn


def stands_out(times: Matrix) -> bool:
    """Whether the slowest rank is slower than R equal ones would make one by luck; needs two rounds and ranks."""
    means = times.mean(axis=0)
    reach = math.sqrt(2 * math.log(len(means))) + BEYOND_LUCK
    return float(means.max() - np.median(means)) > reach * _luck(times)


def _luck(times: Matrix) -> float:
    """Standard error of a rank's mean against the others', by what ranks vary in a round beyond the round itself."""
    rounds, ranks = times.shape
    left = times - times.mean(axis=0) - times.mean(axis=1, keepdims=True) + times.mean()
    return math.sqrt(float((left**2).sum()) / ((rounds - 1) * (ranks - 1)) / rounds)
