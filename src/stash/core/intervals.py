"""A number with its spread: what was measured, and the interval in which the true value may be; and differences.

The one type for this in Stash: of repetitions of a link (here) and of rounds of a ladder (``rounds``). One repetition
has no interval, and is never used to call one thing above or below another. Records hold intervals, and whoever reads
records loads this: NumPy is loaded by what computes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

from stash.core.records.base import Record

K = TypeVar("K")
TAIL = 0.025
"""Of a distribution, what lies on each side beyond its 95 % interval."""
UNEVEN = 1.4
"""How many times slower than the fastest something must be to be called slow."""
_MIN_FOR_ORDER = 6
"""With fewer repetitions even the whole range covers the median in less than 95 % of cases: 1 − 2^(1−n)."""


class Interval(Record):
    """A median or mean and its 95 % confidence interval; both ends ``None`` where nothing is known of them."""

    value: float
    low: float | None = None
    high: float | None = None
    repetitions: int = 1

    @property
    def half_width(self) -> float | None:
        """Half of the interval's width; ``None`` if it is unknown."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    @property
    def within_noise(self) -> bool:
        """Whether the interval is known and contains zero."""
        return self.low is not None and self.high is not None and self.low <= 0.0 <= self.high

    @property
    def holds_itself(self) -> bool:
        """Whether the value is a finite number inside its interval, or its interval is wholly unknown."""
        return is_within(self.value, self.low, self.high)

    def is_below(self, fact: float, tolerance: float = 0.0) -> bool:
        """Whether the whole interval lies below ``fact`` less its ``tolerance``; never if it is unknown."""
        return self.high is not None and self.high < fact * (1 - tolerance)

    def is_above(self, fact: float) -> bool:
        """Whether the whole interval lies above ``fact``; never if it is unknown."""
        return self.low is not None and self.low > fact

    def slower_than(self, other: Interval, factor: float) -> bool:
        """Whether this value is ``factor`` times below the ``other`` and the two intervals do not touch."""
        if self.high is None or other.low is None:
            return False
        return self.value * factor < other.value and self.high < other.low

    def symmetric(self, half_width: float) -> Interval:
        """The value ± ``half_width``."""
        return self.model_copy(
            update={"low": self.value - half_width, "high": self.value + half_width}
        )

    def add_error(self, half_width: float) -> Interval:
        """Add an independent error of that ``half_width``: both arms grow in quadrature."""
        if self.low is None or self.high is None:
            return self
        below, above = (
            math.hypot(arm, half_width) for arm in (self.value - self.low, self.high - self.value)
        )
        return self.model_copy(update={"low": self.value - below, "high": self.value + above})

    def remove_error(self, half_width: float) -> Interval:
        """Remove an error of that ``half_width`` by which the interval was widened."""
        if self.low is None or self.high is None:
            return self
        arms = (self.value - self.low, self.high - self.value)
        below, above = (math.sqrt(max(0.0, arm**2 - half_width**2)) for arm in arms)
        return self.model_copy(update={"low": self.value - below, "high": self.value + above})

    def scale(self, factor: float) -> Interval:
        """The same measurement in another unit, or per something else; ``factor`` is positive."""
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return Interval(value=self.value * factor, low=low, high=high, repetitions=self.repetitions)

    def shift(self, by: float) -> Interval:
        """The same measurement of something that is longer ``by`` so much, known exactly."""
        low, high = (None if end is None else end + by for end in (self.low, self.high))
        return self.model_copy(update={"value": self.value + by, "low": low, "high": high})


def is_within(value: float, low: float | None, high: float | None) -> bool:
    """Whether a value is a finite number between its ends, or both of them are unknown."""
    if low is None or high is None:
        return low is high and math.isfinite(value)
    return -math.inf < low <= value <= high < math.inf


def student_half_width(count: int, deviation: float = 1.0) -> float:
    """Half-width of the 95 % interval of the mean of so many values, two at least, of that standard deviation."""
    from stash.core.distributions import student_quantile

    return float(student_quantile(count - 1, 1 - TAIL)) * deviation / math.sqrt(count)


def median_interval(values: Sequence[float]) -> Interval:
    """The median of positive ``values`` and its interval; needs one value at least.

    From 6 repetitions on, the interval is between two order statistics (the sign test's; no assumption about
    the distribution). Fewer cannot reach 95 % that way, so then it is the wider of their range and Student's
    interval of their logarithms. Repetitions are taken as independent.
    """
    import numpy as np

    ordered = np.sort(np.asarray(values, dtype=np.float64))
    count = len(ordered)
    middle = float(np.median(ordered))
    if count < 2:
        return Interval(value=middle)
    if count < _MIN_FOR_ORDER:
        logs = np.log(ordered)
        arm = student_half_width(count, float(logs.std(ddof=1)))
        center = float(logs.mean())
        low = min(float(ordered[0]), math.exp(center - arm))
        high = max(float(ordered[-1]), math.exp(center + arm))
        return Interval(value=middle, low=low, high=high, repetitions=count)
    outside, ways = 1, count  # in which so many of all repetitions lie on one side of the median
    below = 1 + ways
    all_ways = 2**count
    while below <= all_ways // round(1 / TAIL):
        outside += 1
        ways = ways * (count - outside + 1) // outside
        below += ways
    return Interval(
        value=middle,
        low=float(ordered[outside - 1]),
        high=float(ordered[count - outside]),
        repetitions=count,
    )


def overall_interval(rates: Sequence[float]) -> Interval:
    """The rate over all of several equal amounts, one positive rate each, and Student's interval of it.

    That is their harmonic mean. Where bytes are handed out in portions, as a throttle does ten times a second, a
    repetition holds one portion more or less, and the median is one of these two and never the rate. The ends are
    unknown after one repetition, and where the noise is as large as the rate.
    """
    import numpy as np

    paces = 1 / np.asarray(rates, dtype=np.float64)
    count = len(paces)
    mean = float(paces.mean())
    if count < 2:
        return Interval(value=1 / mean)
    arm = student_half_width(count, float(paces.std(ddof=1)))
    if arm >= mean:
        return Interval(value=1 / mean, repetitions=count)
    return Interval(value=1 / mean, low=1 / (mean + arm), high=1 / (mean - arm), repetitions=count)


def mean_interval(values: Sequence[float]) -> Interval:
    """The mean of ``values``, one at least, and Student's interval of it; its ends are unknown after one value."""
    count = len(values)
    mean = math.fsum(values) / len(values)
    if count < 2:
        return Interval(value=mean)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    arm = student_half_width(count, deviation)
    return Interval(value=mean, low=mean - arm, high=mean + arm, repetitions=count)


def find_uneven(rates: Mapping[K, Interval]) -> tuple[K, tuple[K, ...]] | None:
    """The fastest, and those slower than it by ``UNEVEN`` beyond their intervals, slowest first; ``None`` if even.

    Rates without an interval are left out. With many members the fastest is so partly by luck; ``UNEVEN`` is far
    beyond what that explains.
    """
    known = {name: rate for name, rate in rates.items() if rate.low is not None}
    if len(known) < 2:
        return None
    fastest = max(known, key=lambda name: known[name].value)
    slow = [name for name in known if known[name].slower_than(known[fastest], UNEVEN)]
    return (fastest, tuple(sorted(slow, key=lambda name: known[name].value))) if slow else None


# Differences

TYPICAL_WEIGHT = 10
"""Degrees of freedom that the typical spread counts for next to the runs' own."""
NORMAL = 1.959964
"""Half-width of a 95 % interval in standard errors."""


def pool_runs(runs: Sequence[Interval], spread: float) -> Interval:
    """The mean of one run or more of the same job, and its 95 % interval; unknown if that of any run is.

    A launch differs from the next of the same job by more than its own rounds tell (where memory lies, which clock a
    core has). One run a side knows nothing of that, so a typical spread stands in for it, and gives way to what
    several runs a side show.

    ``spread`` is the typical standard deviation between launches, in the unit of the runs. Their variance is
    moderated: that of the runs found, and the typical one with what each run's own interval explains, weighted by
    degrees of freedom (Smyth 2004, "Linear models and empirical Bayes methods").
    """
    from stash.core.distributions import student_quantile

    count = len(runs)
    mean = sum(run.value for run in runs) / count
    below = [run.value - run.low for run in runs if run.low is not None]
    above = [run.high - run.value for run in runs if run.high is not None]
    if min(len(below), len(above)) < count:
        return Interval(value=mean, repetitions=count)
    found = sum((run.value - mean) ** 2 for run in runs)
    freedom = TYPICAL_WEIGHT + count - 1

    def arm(arms: Sequence[float]) -> float:
        typical = sum((each / NORMAL) ** 2 for each in arms) / count + spread**2
        variance = (TYPICAL_WEIGHT * typical + found) / freedom
        return float(student_quantile(freedom, 0.975)) * math.sqrt(variance / count)

    return Interval(value=mean, low=mean - arm(below), high=mean + arm(above), repetitions=count)


def subtract_runs(before: Interval, after: Interval) -> Interval:
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
