"""Small multiples: a few points against two axes in every panel, each panel with a scale of its own.

The ends of its axes stand in a panel's corners, so that a dozen of them fit on a page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stash.ui.charts.chart import Axis, Chart, Dot, Drawn, Grid, Lane, Tag, Tile, Trail

_ACROSS = 3
_HEIGHT = 200
_LEFT, _RIGHT, _LOW, _HIGH = 0.24, 0.94, 0.22, 0.76
"""Of a panel: where points may be; the rest is for its title and its axes' ends."""
_ROOM = 0.26
"""Of its width, for the words at an axis' end."""


@dataclass(frozen=True)
class PanelPoint:
    """One value; ``label`` is written beside it where there is room."""

    x: float
    y: float
    tip: str
    label: str = ""
    firm: bool = False
    """Whether its label is worth covering other points."""
    hollow: bool = False


@dataclass(frozen=True)
class Panel:
    """One of the multiples."""

    title: str
    points: tuple[PanelPoint, ...]
    line: tuple[tuple[float, float], ...] = ()
    """Through values, in their order; where it leaves the points' range it is not drawn."""


def panels(
    shown: Sequence[Panel],
    name: str,
    title: str,
    how: str,
    units: tuple[Callable[[float], str], Callable[[float], str]],
    table: Grid,
) -> Chart:
    """``units`` write the ends of the horizontal and of the upright axis."""
    across = min(_ACROSS, len(shown))
    rows = math.ceil(len(shown) / across)
    marks: list[Drawn] = []
    for number, panel in enumerate(shown):
        place = _Place(panel, number % across, number // across, across, rows)
        marks += place.marks(*units)
    lanes, columns = (Lane(""),) * rows, ("",) * across
    x = Axis("", ())
    return Chart(name, title, "", how, x, tuple(marks), table, lanes=lanes, columns=columns, row=_HEIGHT)


class _Place:
    """One panel on the plane."""

    def __init__(self, panel: Panel, column: int, row: int, across: int, rows: int) -> None:
        self.panel = panel
        self.left, self.wide = column / across, 1 / across
        self.low, self.high = 1 - (row + 0.998) / rows, 0.996 / rows
        self.xs = _ends([point.x for point in panel.points])
        self.ys = _ends([point.y for point in panel.points])

    def x(self, fraction: float) -> float:
        return self.left + fraction * self.wide

    def y(self, fraction: float) -> float:
        return self.low + fraction * self.high

    def at(self, x: float, y: float) -> tuple[float, float]:
        across, up = _LEFT + (_RIGHT - _LEFT) * _between(x, self.xs), _LOW + (_HIGH - _LOW) * _between(y, self.ys)
        return self.x(across), self.y(up)

    def marks(self, across: Callable[[float], str], upright: Callable[[float], str]) -> list[Drawn]:
        ground = Tile((self.x(0), self.x(1)), (self.y(0), self.y(1)), level=0.0)
        found: list[Drawn] = [ground]
        low, high = self.ys
        line = [at for at in self.panel.line if low <= at[1] <= high or any(math.isclose(at[1], y) for y in self.ys)]
        if len(line) > 1:
            found.append(Trail(tuple(self.at(*point) for point in line), "shade"))
        for point in self.panel.points:
            found.append(Dot(*self.at(point.x, point.y), "shade", point.tip, point.hollow))
        found.append(_words(self.x(0.02), self.x(0.98), self.y(0.88), self.y(1.0), self.panel.title))
        found += self._ends(across, upright)
        within = (self.x(_LEFT - 0.05), self.x(1.0))
        found += [
            Tag(*self.at(point.x, point.y), point.label, point.firm, within)
            for point in self.panel.points
            if point.label
        ]
        return found

    def _ends(self, across: Callable[[float], str], upright: Callable[[float], str]) -> list[Drawn]:
        """The values at the ends of both axes, below and beside the points; one where the ends are the same."""
        below, beside = (self.y(0.0), self.y(0.12)), (self.x(0.0), self.x(_LEFT))
        found: list[Drawn] = []
        for value, place in zip(dict.fromkeys(self.xs), (_LEFT, _RIGHT), strict=False):
            left = min(place - _ROOM / 2, 1 - _ROOM)
            found.append(_words(self.x(left), self.x(left + _ROOM), *below, across(value), quiet=True))
        for value, place in zip(dict.fromkeys(self.ys), (_LOW, _HIGH), strict=False):
            found.append(_words(*beside, self.y(place - 0.06), self.y(place + 0.06), upright(value), quiet=True))
        return found


def _words(left: float, right: float, low: float, high: float, text: str, quiet: bool = False) -> Tile:
    return Tile((left, right), (low, high), (text, text.replace(" ", "")), quiet=quiet)


def _ends(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def _between(value: float, ends: tuple[float, float]) -> float:
    """Evenly, or by logarithms where the ends are ten times apart; in the middle where they are the same."""
    low, high = ends
    if math.isclose(low, high):
        return 0.5
    if low > 0 and high > 10 * low:
        return math.log(value / low) / math.log(high / low)
    return (value - low) / (high - low)
