"""The shapes that all charts have: rows of bars and intervals, and points with lines on a plane of two axes.

Takes values in their own units and places them; knows nothing of what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from stash.ui.charts.chart import (
    Axis,
    Bar,
    Chart,
    Dot,
    Drawn,
    Extent,
    Grid,
    Lane,
    Legend,
    Ribbon,
    Rule,
    Tag,
    Trail,
    Whisker,
    band,
    centre,
    logarithmic_extent,
    make_axis,
    plain_axis,
    round_extent,
)

CURVES = ("contention", "network", "compute", "prep", "interconnect", "fetch", "transfer")
"""Colours that curves take in turn."""
_MAX_TIPS = 1000
"""Dots that have a tooltip: among more, no single one can be pointed at."""


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


def worded_ruler(
    values: Iterable[float | None],
    label: str,
    write: Callable[[float], str],
    by_powers: bool = False,
) -> Ruler:
    """Values as ``write`` writes them, evenly or ``by_powers`` of ten."""
    known = [value for value in values if value is not None]
    shown = logarithmic_extent(known) if by_powers else round_extent(known)
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
    marks: list[Drawn] = []
    tips = sum(len(row.values) for row in rows) <= _MAX_TIPS
    for number, row in enumerate(rows):
        y = centre(number, len(rows))
        for piece in row.pieces:
            place = x.span(piece.start, piece.end)
            marks.append(Bar(place, band(number, len(rows)), piece.series, piece.tip, piece.faint))
        if row.low is not None and row.high is not None:
            marks.append(Whisker(x.span(row.low, row.high), (y, y)))
        for each in row.values:
            if each.low is not None and each.high is not None:
                marks.append(Whisker(x.span(each.low, each.high), (y, y), each.line or each.series))
            marks.append(Dot(x.locate(each.value), y, each.series, each.tip if tips else ""))
    lanes = tuple(
        Lane(row.name, f"unknown: {row.unknown}", quiet=True)
        if row.unknown
        else Lane(row.name, row.text)
        for row in rows
    )
    return Chart(
        name, title, caption, how, x.axis, tuple(marks), table, lanes=lanes, keys=tuple(keys)
    )


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
    marks: list[Drawn] = [Rule(x.locate(value)) for value in rules]
    tips = sum(len(curve.points) for curve in curves if curve.dots) <= _MAX_TIPS
    for curve in curves:
        marks += _drawn(curve, x, y, tips)
    return Chart(
        name, title, caption, how, x.axis, (*marks, *tags), table, y=y.axis, keys=tuple(keys)
    )


def _drawn(curve: PlotCurve, x: Ruler, y: Ruler, tips: bool) -> Iterable[Drawn]:
    known = [point for point in curve.points if point.low is not None and point.high is not None]
    if curve.ribbon:
        yield Ribbon(
            tuple((x.locate(p.x), y.locate(p.low or 0.0), y.locate(p.high or 0.0)) for p in known),
            curve.series,
        )
    if curve.line and len(curve.points) > 1:
        yield Trail(
            tuple((x.locate(point.x), y.locate(point.y)) for point in curve.points), curve.series
        )
    if not curve.dots:
        return
    for point in curve.points:
        across = x.locate(point.x)
        up = y.locate(point.y)
        if point.left is not None and point.right is not None:
            yield Whisker((x.locate(point.left), x.locate(point.right)), (up, up), curve.series)
        if point.low is not None and point.high is not None and not curve.ribbon:
            yield Whisker(
                (across, across), (y.locate(point.low), y.locate(point.high)), curve.series
            )
        yield Dot(across, up, curve.series, point.tip if tips else "", hollow=point.hollow)
