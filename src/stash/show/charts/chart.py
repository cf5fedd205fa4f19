"""A chart as data: axes, rows and marks, placed as fractions of its plane, with the table that says the same.

All arithmetic is done by whoever makes a chart: a renderer turns fractions into its own units and chooses nothing but
sizes and colours. ``x`` runs from left to right and ``y`` from the bottom up, both from 0 to 1; a chart with rows has
their names on its left, the first one on top.
"""

from __future__ import annotations

from dataclasses import dataclass

from stash.show.grid import Grid


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
    says: str = ""
    """What pointing at it tells."""
    faint: bool = False


@dataclass(frozen=True)
class Whisker:
    """An interval: a thin line with ends, level or upright."""

    x: tuple[float, float]
    y: tuple[float, float]
    series: str = ""


@dataclass(frozen=True)
class Dot:
    """One value; hollow if it does not count."""

    x: float
    y: float
    series: str
    says: str = ""
    hollow: bool = False


@dataclass(frozen=True)
class Trail:
    """A line through points, in their order."""

    points: tuple[tuple[float, float], ...]
    series: str


@dataclass(frozen=True)
class Ribbon:
    """The stretch between two lines: places along ``x``, each with its lower and its upper ``y``."""

    edges: tuple[tuple[float, float, float], ...]
    series: str


@dataclass(frozen=True)
class Rule:
    """A line across the whole plane at ``x``: what everything is measured against."""

    x: float


@dataclass(frozen=True)
class Tag:
    """A few words about a place; a renderer leaves it out where it would touch dots, rules or tags before it."""

    x: float
    y: float
    text: str
    firm: bool = False
    """Whether it is worth covering dots."""
    within: tuple[float, float] | None = None
    """The stretch of ``x`` that it must not leave; ``None``: the plane and the room beside it."""


@dataclass(frozen=True)
class TileBar:
    """A thin bar at the foot of a tile: ``length`` is a fraction of its width, ``line`` counts from the foot."""

    length: float
    series: str
    faint: bool = False
    line: int = 0


@dataclass(frozen=True)
class Tile:
    """One cell of a matrix: a shade, words and thin bars; hatched where there should be something and is nothing."""

    x: tuple[float, float]
    y: tuple[float, float]
    texts: tuple[str, ...] = ()
    """The same in ever fewer letters; the first that fits is written."""
    says: str = ""
    level: float | None = None
    """How strong the shade is, 0 to 1; ``None``: it has none."""
    bars: tuple[TileBar, ...] = ()
    missing: bool = False
    quiet: bool = False
    """Whether its words are about what is not known."""
    link: str = ""
    """Where a page leads from it."""


@dataclass(frozen=True)
class Lane:
    """One row: its name, and what stands at its end."""

    name: str
    text: str = ""
    quiet: bool = False
    """Whether nothing is drawn in it: it is unknown."""


@dataclass(frozen=True)
class Legend:
    """What a series is called, where the rows do not say it."""

    series: str
    text: str


Drawn = Bar | Whisker | Dot | Trail | Ribbon | Rule | Tag | Tile


@dataclass(frozen=True)
class Chart:
    """One chart; ``name`` is unique in a report, and the stem of its file as a figure."""

    name: str
    title: str
    caption: str
    """What is to be seen in it; empty where that is said elsewhere."""
    how: str
    """How to read it."""
    x: Axis
    """Not drawn of a chart with ``columns``."""
    marks: tuple[Drawn, ...]
    table: Grid
    """The same as text: for whoever cannot see the chart, or wants its numbers."""
    y: Axis | None = None
    lanes: tuple[Lane, ...] = ()
    """Rows, top to bottom; a chart has these or a ``y`` axis."""
    keys: tuple[Legend, ...] = ()
    columns: tuple[str, ...] = ()
    """Of a matrix: names above columns of equal width."""
    row: int = 0
    """Pixels that a row of a matrix needs; 0: what words and thin bars do."""


@dataclass(frozen=True)
class Blank:
    """A chart that cannot be drawn, and why not."""

    name: str
    title: str
    why: str


def band(row: int, rows: int, height: float = 0.5) -> tuple[float, float]:
    """Where a bar of this share of its row's height stands in ``y``."""
    middle = centre(row, rows)
    return middle - height / rows / 2, middle + height / rows / 2


def centre(row: int, rows: int) -> float:
    """The middle of a row in ``y``."""
    return 1 - (row + 0.5) / rows
