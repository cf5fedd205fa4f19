"""Two measurements of the same thing, taken at different times: how far apart they are, with an interval.

A launch differs from the next of the same job by more than its own rounds tell (where memory lies, which clock a
core has). One run a side knows nothing of that, so a typical spread stands in for it, and gives way to what several
runs a side show. Knows plain intervals; knows nothing of jobs, stalls or what is worth comparing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy.special import stdtrit

from stash.base.stats.intervals import Interval

TYPICAL_WEIGHT = 10
"""Degrees of freedom that the typical spread counts for beside the runs' own."""
_NORMAL = 1.959964
"""Half-width of a 95 % interval in standard errors."""


def together(runs: Sequence[Interval], spread: float) -> Interval:
    """The mean of one run or more of the same job, and its 95 % interval; unknown if that of any run is.

    ``spread`` is the typical standard deviation between launches, in the unit of the runs. Their variance is
    moderated: that of the runs found, and the typical one with what each run's own interval explains, weighted by
    degrees of freedom (Smyth 2004, "Linear models and empirical Bayes methods").
    """
    count = len(runs)
    mean = sum(run.value for run in runs) / count
    below = [run.value - run.low for run in runs if run.low is not None]
    above = [run.high - run.value for run in runs if run.high is not None]
    if min(len(below), len(above)) < count:
        return Interval(value=mean, repetitions=count)
    found = sum((run.value - mean) ** 2 for run in runs)
    low, high = mean - _arm(below, found, spread), mean + _arm(above, found, spread)
    return Interval(value=mean, low=low, high=high, repetitions=count)


def _arm(arms: Sequence[float], found: float, spread: float) -> float:
    """Of the mean of several runs, on the side of these arms; ``found`` is the runs' sum of squares."""
    count = len(arms)
    typical = sum((arm / _NORMAL) ** 2 for arm in arms) / count + spread**2
    freedom = TYPICAL_WEIGHT + count - 1
    variance = (TYPICAL_WEIGHT * typical + found) / freedom
    return float(stdtrit(freedom, 0.975)) * math.sqrt(variance / count)


def change(before: Interval, after: Interval) -> Interval:
    """``after`` less ``before``, measured independently; unknown if the interval of either is.

    The arms are added in quadrature, each side's own (the method of variance estimates recovery, Zou and Donner
    2008), so that lopsided intervals stay so.
    """
    value = after.value - before.value
    if before.low is None or before.high is None or after.low is None or after.high is None:
        return Interval(value=value)
    below = math.hypot(after.value - after.low, before.high - before.value)
    above = math.hypot(after.high - after.value, before.value - before.low)
    return Interval(value=value, low=value - below, high=value + above)
