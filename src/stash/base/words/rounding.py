"""Digits for people: the unit and decimals that fit a number, and a rounding that keeps a sum.

Pure arithmetic on what is about to be shown; knows no statistics, no layout and none of the units themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Scale(NamedTuple):
    """A unit fit for a number: its name, its size in base units, and how many decimals to show."""

    unit: str
    size: float
    decimals: int

    def number(self, value: float) -> str:
        """A value in base units as a number of this unit, without its name."""
        return f"{value / self.size:,.{self.decimals}f}"

    def text(self, value: float) -> str:
        """The same with the unit's name: ``"46.8 MB"``."""
        return f"{self.number(value)} {self.unit}"


def scale_for(value: float, units: Sequence[tuple[float, str]], digits: int = 3) -> Scale:
    """The unit out of ``units`` (size and name, largest first) that shows ``value`` with ``digits`` digits.

    It is the largest of which there is at least one after rounding: 999.6 MB are 1.00 GB. Of the smallest unit
    there may be less than one, and then there are fewer digits.
    """
    one = 1 - 0.5 * 10.0**-digits
    size, unit = next((step for step in units if abs(value) >= one * step[0]), units[-1])
    rounded = float(f"{value / size:.{digits - 1}e}")
    return Scale(unit, size, min(digits - 1, significant_decimals(rounded, digits)))


def significant_decimals(size: float, digits: int) -> int:
    """How many decimals show ``size`` with ``digits`` significant digits, never negative."""
    if not size or not math.isfinite(size):
        return digits
    return max(0, digits - 1 - math.floor(math.log10(abs(size))))


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
