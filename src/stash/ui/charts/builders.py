"""The shapes that all charts have: rows of bars and intervals, and points with lines on a plane of two axes.

Takes values in their own units; knows nothing of what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from stash.ui.charts.chart import (
    Axis,
    Bar,
    Extent,
    Grid,
    Legend,
    Tag,
    logarithmic_extent,
    make_axis,
    plain_axis,
    round_extent,
)

CURVES = ("contention", "network", "compute", "prep", "interconnect", "fetch", "transfer")
"""Colours that curves take in turn."""


@dataclass(frozen=True)
class Ruler:
    """A direction of a chart: the values it shows, and how it is labelled."""

    shown: Extent
    axis: Axis
    size: float = 1.0
    """Of the unit in which values are shown."""

    def locate(self, value: float) -> float:
        """Where ``value`` stands, or the nearer end of the axis."""
        return min(1.0, max(0.0, self.shown.locate(value / self.size)))

    def span(self, first: float, second: float) -> tuple[float, float]:
        """Where a stretch of values begins and ends, the smaller first."""
        return self.locate(min(first, second)), self.locate(max(first, second))


def make_ruler(
    values: Iterable[float | None], label: str, size: float = 1.0, zero: bool = True
) -> Ruler:
    """Numbers in units of ``size``, with round ends around all values."""
    shown = round_extent([None if value is None else value / size for value in values], zero)
    return Ruler(shown, plain_axis(shown, label), size)


def power_ruler(values: Iterable[float | None], label: str, write: Callable[[float], str]) -> Ruler:
    """Values by powers of ten, as ``write`` writes them."""
    shown = logarithmic_extent(value for value in values if value is not None)
    return Ruler(shown, make_axis(shown, label, write))


@dataclass(frozen=True)
class BarPiece:
    """One bar, from a value to another."""

    start: float
    end: float
    series: str
    tip: str = ""
    faint: bool = False


@dataclass(frozen=True)
class Value:
    """One dot of a row, with its interval if it has one."""

    value: float
    series: str
    tip: str = ""
    low: float | None = None
    high: float | None = None
    line: str = ""
    """The series of its interval; empty: its own."""


@dataclass(frozen=True)
class LaneRow:
    """One row of a chart: bars, then the interval of the whole from ``low`` to ``high``, then dots."""

    name: str
    text: str = ""
    """What stands at its end."""
    pieces: tuple[BarPiece, ...] = ()
    low: float | None = None
    high: float | None = None
    values: tuple[Value, ...] = ()
    unknown: str = ""
    """Why nothing is drawn."""


@dataclass(frozen=True)
class PlotPoint:
    """One value on a plane, with an upright interval if it has one, and a level one if it has that."""

    x: float
    y: float
    tip: str = ""
    low: float | None = None
    high: float | None = None
    left: float | None = None
    right: float | None = None
    hollow: bool = False


@dataclass(frozen=True)
class PlotCurve:
    """Points of one colour: as dots, as a line through them, as the ribbon of their intervals, or all of it."""

    series: str
    points: tuple[PlotPoint, ...]
    line: bool = False
    dots: bool = True
    ribbon: bool = False


@dataclass(frozen=True)
class Chart:
    """One chart; ``name`` is unique in a report, and the stem of its file as a figure."""

    name: str
    title: str
    caption: str
    """What the chart shows, in a sentence; empty where the page says it elsewhere."""
    how: str
    """How to read it."""
    x: Ruler
    table: Grid
    """The same as text: for whoever cannot see the chart, or wants its numbers."""
    y: Ruler | None = None
    lanes: tuple[LaneRow, ...] = ()
    """Rows, top to bottom; a chart has these or a ``y`` axis."""
    curves: tuple[PlotCurve, ...] = ()
    bars: tuple[Bar, ...] = ()
    """Behind the curves."""
    rules: tuple[float, ...] = ()
    """Values of ``x`` at which a line goes across the whole plane."""
    tags: tuple[Tag, ...] = ()
    keys: tuple[Legend, ...] = ()


def lane_chart(
    name: str,
    title: str,
    rows: Sequence[LaneRow],
    x: Ruler,
    table: Grid,
    how: str = "",
    caption: str = "",
    keys: Sequence[Legend] = (),
) -> Chart:
    """Rows one below the other over one axis."""
    return Chart(name, title, caption, how, x, table, lanes=tuple(rows), keys=tuple(keys))


def lanes_ruler(rows: Sequence[LaneRow], label: str, size: float = 1.0, zero: bool = True) -> Ruler:
    """An axis that holds everything in the rows."""
    return make_ruler(ends_of(rows), label, size, zero)


def ends_of(rows: Sequence[LaneRow]) -> list[float | None]:
    """All values that the rows reach to."""
    found: list[float | None] = []
    for row in rows:
        found += [row.low, row.high]
        found += [end for piece in row.pieces for end in (piece.start, piece.end)]
        found += [end for each in row.values for end in (each.value, each.low, each.high)]
    return found


def level(y: float, series: str = "plain") -> PlotCurve:
    """A line across the whole plane; ``x`` of its points are the axis' ends, wherever these are."""
    return PlotCurve(
        series, (PlotPoint(float("-inf"), y), PlotPoint(float("inf"), y)), line=True, dots=False
    )


def plane_chart(
    name: str,
    title: str,
    curves: Sequence[PlotCurve],
    x: Ruler,
    y: Ruler,
    table: Grid,
    how: str,
    caption: str = "",
    keys: Sequence[Legend] = (),
    rules: Sequence[float] = (),
    tags: Sequence[Tag] = (),
) -> Chart:
    """Curves over two axes; lines upright at the values ``rules``; what lies beyond an axis stands at its edge."""
    return Chart(
        name,
        title,
        caption,
        how,
        x,
        table,
        y,
        curves=tuple(curves),
        rules=tuple(rules),
        tags=tuple(tags),
        keys=tuple(keys),
    )
