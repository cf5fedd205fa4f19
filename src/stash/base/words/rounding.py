"""Rounding for people: numbers that add up before rounding add up after it, in one unit with few digits.

Pure arithmetic on what is about to be shown; no statistics and no layout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

DIGITS = 4
"""Significant digits of a step's time."""


def round_to_sum(values: Sequence[float], decimals: int) -> list[float]:
    """``values`` rounded to ``decimals`` so that they add up to their rounded sum (largest remainder).

    Each changes by less than one unit of the last decimal. All values must be finite.
    """
    unit = 10.0**decimals
    scaled = [value * unit for value in values]
    whole = [math.floor(value) for value in scaled]
    missing = round(sum(scaled)) - sum(whole)
    by_remainder = sorted(range(len(values)), key=lambda i: whole[i] - scaled[i])
    for i in by_remainder[:missing]:
        whole[i] += 1
    return [round(value / unit, max(0, decimals)) for value in whole]


def significant_decimals(size: float, digits: int = DIGITS) -> int:
    """How many decimals show ``size`` with ``digits`` significant digits, never negative."""
    if not size or not math.isfinite(size):
        return digits
    return max(0, digits - 1 - math.floor(math.log10(abs(size))))


class Clock(NamedTuple):
    """A unit of time fit for one step: multiply seconds by ``per_second``, show ``decimals``."""

    unit: str
    per_second: float
    decimals: int

    def show(self, seconds: float) -> str:
        """A time in seconds as a number of this unit, without the unit."""
        return f"{seconds * self.per_second:,.{self.decimals}f}"


def clock_for(step_seconds: float) -> Clock:
    """The unit in which a step of this length has one to three digits before the point."""
    units = (("s", 1.0), ("ms", 1e3), ("µs", 1e6))
    unit, per_second = next((u for u in units if step_seconds * u[1] >= 1), units[-1])
    return Clock(unit, per_second, significant_decimals(step_seconds * per_second))
