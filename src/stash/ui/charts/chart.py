"""A chart as data: axes, rows and marks as fractions of its plane, colours, and the table that says the same.

Knows no renderer: ``svg`` draws it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from stash.core.units import SECONDS, Scale, scale_for

# One table as text, whatever renders it: behind every chart, and of every kind of fact that has columns.


@dataclass(frozen=True)
class GridLink:
    """A part of a cell's text, and where it leads; to nowhere if ``to`` is empty."""

    text: str
    to: str = ""


@dataclass(frozen=True)
class Grid:
    """One table under its title. Columns are numbers unless named in ``texts``; the first has no head."""

    title: str
    head: tuple[str, ...]
    """Of the columns after the first."""
    rows: tuple[tuple[str, ...], ...]
    texts: frozenset[int]
    below: str = ""
    """A sentence under the table."""
    first: str = ""
    """What the first column holds, where a renderer has to say it."""
    filters: tuple[int, ...] = ()
    """Columns by whose values rows are chosen, where a reader can."""
    links: Mapping[tuple[int, int], tuple[GridLink, ...]] = field(default_factory=dict)
    """By row and column: what the cell's text is made of."""
    ranks: tuple[int, ...] = ()
    """Of columns, the first included: where there is no room, the highest is left out first, and 0 never."""
    prose: bool = False
    """Whether the last column holds sentences, which are wrapped beside the row or below it."""
    total: bool = False
    """Whether the last row is the sum of the others."""
    upright: bool = False
    """Whether each column is one thing and rows are its facts: without room, one thing is below the other."""


# A chart as data, placed as fractions of its plane, from left to right and from the bottom up. A renderer turns
# fractions into its own units and chooses nothing but sizes and colours.


@dataclass(frozen=True)
class Tick:
    """One labelled place on an axis."""

    at: float
    text: str


@dataclass(frozen=True)
class Axis:
    """What a direction means, with its unit, and its labelled places."""

    label: str
    ticks: tuple[Tick, ...]


@dataclass(frozen=True)
class Bar:
    """A filled rectangle of the colour of ``series``; a faint one stands for something that is not certain."""

    x: tuple[float, float]
    y: tuple[float, float]
    series: str
    tip: str = ""
    """What pointing at it tells."""
    faint: bool = False


@dataclass(frozen=True)
class Tag:
    """A few words about a place; a renderer leaves it out where it would touch dots, rules or tags before it."""

    x: float
    y: float
    text: str
    firm: bool = False
    """Whether it is worth covering dots."""


@dataclass(frozen=True)
class Legend:
    """What a series is called, where the rows do not say it."""

    series: str
    text: str


@dataclass(frozen=True)
class Blank:
    """A chart that cannot be drawn, and why not."""

    name: str
    title: str
    why: str


def band(row: int, rows: int) -> tuple[float, float]:
    """Where a bar of half its row's height stands in ``y``."""
    middle = centre(row, rows)
    return middle - 0.25 / rows, middle + 0.25 / rows


def centre(row: int, rows: int) -> float:
    """The middle of a row in ``y``."""
    return 1 - (row + 0.5) / rows


# Axes: the range that holds all values, round places on it, and how a value becomes a fraction of it.

_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
_PLACES = 6
_TINY = 1e-300
"""Below it nothing is distinguished: a tenth of it has too few digits."""


@dataclass(frozen=True)
class Extent:
    """The values that an axis shows, from ``low`` to ``high``, evenly or by their logarithms."""

    low: float
    high: float
    step: float = 0.0
    """From one round value to the next; of a logarithmic one by powers of ten, and 0 where there is none."""
    logarithmic: bool = False

    def locate(self, value: float) -> float:
        """The fraction of the axis at which ``value`` stands; beyond 0 to 1 if it is not shown."""
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def round_extent(values: Iterable[float | None], zero: bool = True) -> Extent:
    """An extent with round ends around all ``values``, and around zero unless it would hide what differs."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    low = min(known, default=0.0)
    high = max(known, default=1.0)
    if zero:
        low = min(low, 0.0)
        high = max(high, 0.0)
    size = max(abs(low), abs(high))
    if high - low <= max(1e-9 * size, _TINY):
        low, high = (
            (low - 0.5, high + 0.5)
            if size <= _TINY
            else (low - abs(low) / 10, high + abs(high) / 10)
        )
    # A round distance that parts width into about six.
    raw = (high - low) / _PLACES
    power = 10.0 ** math.floor(math.log10(raw))
    step = power * next(each for each in _ROUND if each * power >= raw * 0.999)
    return Extent(step * math.floor(low / step + 1e-9), step * math.ceil(high / step - 1e-9), step)


def logarithmic_extent(values: Iterable[float]) -> Extent:
    """An extent by powers of ten around positive ``values``."""
    known = [value for value in values if value > 0]
    low = 10.0 ** math.floor(math.log10(min(known, default=1.0)) + 1e-9)
    high = 10.0 ** math.ceil(math.log10(max(known, default=10.0)) - 1e-9)
    return Extent(low, max(high, 10 * low), logarithmic=True)


def round_places(shown: Extent) -> list[float]:
    """Round values on the axis: about six, or every power of ten."""
    if shown.logarithmic:
        first = round(math.log10(shown.low))
        last = round(math.log10(shown.high))
        return [10.0**power for power in range(first, last + 1)]
    count = round((shown.high - shown.low) / shown.step)
    return [shown.low + number * shown.step for number in range(count + 1)]


def make_axis(shown: Extent, label: str, text: Callable[[float], str]) -> Axis:
    """An axis with its round places as ``text`` writes them."""
    return Axis(
        label, tuple(Tick(shown.locate(value), text(value)) for value in round_places(shown))
    )


def plain_axis(shown: Extent, label: str) -> Axis:
    """An axis of numbers, with as many decimals as its places differ in."""
    decimals = max(0, -math.floor(math.log10(shown.step) + 1e-9))
    if abs(shown.step * 10**decimals - round(shown.step * 10**decimals)) > 1e-6:
        decimals += 1  # 2.5 needs one more than 2
    return make_axis(shown, label, lambda value: f"{round(value, decimals) + 0.0:,.{decimals}f}")


def time_scale(seconds: float) -> Scale:
    """The unit in which durations around ``seconds`` are shown."""
    return scale_for(seconds, SECONDS, 4)


# The colours of series, after Okabe and Ito (2008, "Color Universal Design"), but a wine red for yellow, which paper
# swallows; lighter for a dark page. Any two differ as the colour-blind see them (Machado and others 2009). ``shade``
# is for what is no stall. ``loop``, ``start``, ``evaluation`` and ``checkpoint`` are a watch's, which tells neither
# fetch nor network apart and has no bubble; ``exchange``, ``input`` and ``host`` are a trace's, which has none of
# interconnect, network, prep and fetch.

LIGHT: Mapping[str, str] = {
    "compute": "#009e73",
    "transfer": "#56b4e9",
    "contention": "#0072b2",
    "bubble": "#6f2bd9",
    "interconnect": "#e69f00",
    "network": "#d55e00",
    "prep": "#cc79a7",
    "fetch": "#994477",
    "exchange": "#d55e00",
    "input": "#cc79a7",
    "host": "#e69f00",
    "loop": "#5a92d0",
    "start": "#994477",
    "evaluation": "#6f2bd9",
    "checkpoint": "#d55e00",
    "plain": "#8792a0",
    "slower": "#d55e00",
    "faster": "#009e73",
    "shade": "#084f96",
    "heat": "#5a92d0",
}
DARK: Mapping[str, str] = {
    "compute": "#2fbf94",
    "transfer": "#8fd0f7",
    "contention": "#3d94d6",
    "bubble": "#9b4dff",
    "interconnect": "#f2b632",
    "network": "#f0803c",
    "prep": "#e6a5c8",
    "fetch": "#b8558a",
    "exchange": "#f0803c",
    "input": "#e6a5c8",
    "host": "#f2b632",
    "loop": "#2b6aa0",
    "start": "#b8558a",
    "evaluation": "#9b4dff",
    "checkpoint": "#f0803c",
    "plain": "#6f7c8a",
    "slower": "#f0803c",
    "faster": "#2fbf94",
    "shade": "#7cc0f5",
    "heat": "#2b6aa0",
}
INK, MUTED, LINES = "#1b1f24", "#5a6472", "#d9dee4"
"""Of paper: text, quiet text, lines of the grid."""


def series(name: str, *tones: str) -> str:
    """The class of a series, behind others; one that has no colour is ``plain``."""
    return " ".join((*filter(None, tones), f"s-{name if name in LIGHT else 'plain'}"))
