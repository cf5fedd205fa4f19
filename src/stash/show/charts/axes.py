"""Axes: the range that holds all values, round places on it, and how a value becomes a fraction of it.

Knows numbers and units; knows nothing of what is measured, nor of how long a label is when it is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from stash.base.words.rounding import Scale, scale_for
from stash.base.words.units import SECONDS
from stash.show.charts.chart import Axis, Tick, Whisker

_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
_PLACES = 6
_TINY = 1e-300
"""Below it nothing is told apart: a tenth of it has too few digits."""


@dataclass(frozen=True)
class Extent:
    """The values that an axis shows, from ``low`` to ``high``, evenly or by their logarithms."""

    low: float
    high: float
    step: float = 0.0
    """From one round value to the next; of a logarithmic one by powers of ten, and 0 where there is none."""
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """The fraction of the axis at which ``value`` stands; beyond 0 to 1 if it is not shown."""
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def span(self, first: float, second: float) -> tuple[float, float]:
        """Where a stretch of values begins and ends, the smaller first."""
        return self.at(min(first, second)), self.at(max(first, second))


def extent(values: Iterable[float | None], zero: bool = True) -> Extent:
    """An extent with round ends around all ``values``, and around zero unless it would hide what differs."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    low, high = min(known, default=0.0), max(known, default=1.0)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    size = max(abs(low), abs(high))
    if high - low <= max(1e-9 * size, _TINY):
        low, high = (low - 0.5, high + 0.5) if size <= _TINY else (low - abs(low) / 10, high + abs(high) / 10)
    step = _step(high - low)
    return Extent(step * math.floor(low / step + 1e-9), step * math.ceil(high / step - 1e-9), step)


def logarithmic(values: Iterable[float]) -> Extent:
    """An extent by powers of ten around positive ``values``."""
    known = [value for value in values if value > 0]
    low = 10.0 ** math.floor(math.log10(min(known, default=1.0)) + 1e-9)
    high = 10.0 ** math.ceil(math.log10(max(known, default=10.0)) - 1e-9)
    return Extent(low, max(high, 10 * low), logarithmic=True)


def places(shown: Extent) -> list[float]:
    """Round values on the axis: about six, or every power of ten."""
    if shown.logarithmic:
        first, last = round(math.log10(shown.low)), round(math.log10(shown.high))
        return [10.0**power for power in range(first, last + 1)]
    count = round((shown.high - shown.low) / shown.step)
    return [shown.low + number * shown.step for number in range(count + 1)]


def axis(shown: Extent, label: str, text: Callable[[float], str]) -> Axis:
    """An axis with its round places as ``text`` writes them."""
    return Axis(label, tuple(Tick(shown.at(value), text(value)) for value in places(shown)))


def plain_axis(shown: Extent, label: str, unit_size: float = 1.0) -> Axis:
    """An axis of numbers in units of ``unit_size``, with as many decimals as its places differ in."""
    step = shown.step / unit_size
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    if abs(step * 10**decimals - round(step * 10**decimals)) > 1e-6:
        decimals += 1  # 2.5 needs one more than 2

    def text(value: float) -> str:
        return f"{round(value / unit_size, decimals) + 0.0:,.{decimals}f}"

    return axis(shown, label, text)


def time_scale(seconds: float) -> Scale:
    """The unit in which durations around ``seconds`` are shown."""
    return scale_for(seconds, SECONDS, 4)


def whisker(
    shown: Extent, low: float | None, high: float | None, y: float, series: str = "", start: float = 0.0
) -> list[Whisker]:
    """The mark of an interval around something that begins at ``start``; none where it is unknown."""
    if low is None or high is None:
        return []
    return [Whisker(shown.span(start + low, start + high), (y, y), series)]


def _step(width: float) -> float:
    """A round distance that parts ``width`` into about six."""
    raw = width / _PLACES
    power = 10.0 ** math.floor(math.log10(raw))
    return power * next(each for each in _ROUND if each * power >= raw * 0.999)
