"""A study as a sheet: a row a workload at a batch, a column a place, in each cell a result or why there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from stash.derive.study.reading import StudyReading
from stash.derive.study.results import StudyResult
from stash.show.charts.chart import Axis, Chart, Drawn, Lane, Legend, Tile, TileBar, band
from stash.show.grid import Grid
from stash.show.study.view import missing_word, what, where

UNKNOWN = "–"
_MOST_COLUMNS = 8
"""Places in one chart: as many as a page has room for."""
_WHOLE = 0.996
"""Of a row's height, so that a tile's edge is still in its own row."""


@dataclass(frozen=True)
class MissingCell:
    """A combination of the study that has no result."""

    word: str
    why: str


@dataclass(frozen=True)
class StudySheet:
    """All combinations of a study."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    results: Mapping[tuple[str, str], StudyResult]
    missing: Mapping[tuple[str, str], MissingCell]
    workloads: Mapping[str, str]
    """By row."""

    def parts(self) -> list[tuple[str, ...]]:
        """The columns in as many charts as they need, none with one column alone."""
        size = ceil(len(self.columns) / ceil(len(self.columns) / _MOST_COLUMNS))
        return [self.columns[first : first + size] for first in range(0, len(self.columns), size)]


def sheet(reading: StudyReading, found: Sequence[StudyResult]) -> StudySheet:
    """Rows by size, columns in the order of the study's cells."""
    cells = sorted(reading.cells, key=lambda cell: (cell.size, cell.workload, cell.batch or 0))
    results = {(what(each.cell), where(each.cell)): each for each in found}
    missing: dict[tuple[str, str], MissingCell] = {}
    for cell in cells:
        at = what(cell), where(cell)
        if at not in results and at not in missing:
            standing = reading.standings[cell.id]
            word = missing_word(standing.state)
            missing[at] = MissingCell(word, standing.why or word)
    rows = {what(cell): cell.workload for cell in cells}
    columns = dict.fromkeys(where(cell) for cell in reading.cells)
    return StudySheet(tuple(rows), tuple(columns), results, missing, rows)


@dataclass(frozen=True)
class TileText:
    """What a cell of a matrix shows."""

    texts: tuple[str, ...]
    """From the longest to the shortest."""
    says: str = ""
    level: float | None = None
    bars: tuple[TileBar, ...] = ()


@dataclass(frozen=True)
class Unknown:
    """What a cell of a matrix cannot show."""

    why: str


ReadTile = Callable[[StudyResult], TileText | Unknown]


def matrix_charts(
    shown: StudySheet,
    read: ReadTile,
    name: str,
    title: str,
    how: str,
    keys: Sequence[Legend] = (),
) -> tuple[Chart, ...]:
    """Charts with what ``read`` says of every result, some places a chart."""
    charts = []
    for number, columns in enumerate(shown.parts(), 1):
        marks: list[Drawn] = []
        for row, column, x, y in places(shown, columns):
            marks.append(_tile(shown, row, column, x, y, read))
        charts.append(
            Chart(
                name=name if number == 1 else f"{name}-{number}",
                title=title,
                caption="",
                how=how,
                x=Axis("", ()),
                marks=tuple(marks),
                lanes=tuple(map(Lane, shown.rows)),
                keys=tuple(keys),
                columns=columns,
                table=text_table(shown, columns, read, title),
            )
        )
    return tuple(charts)


def places(
    shown: StudySheet, columns: Sequence[str]
) -> list[tuple[str, str, tuple[float, float], tuple[float, float]]]:
    """Row, column, and where on the plane each cell is."""
    wide = 1 / len(columns)
    return [
        (row, column, (number * wide, (number + 1) * wide), band(line, len(shown.rows), _WHOLE))
        for line, row in enumerate(shown.rows)
        for number, column in enumerate(columns)
    ]


def missing_tile(
    shown: StudySheet, row: str, column: str, x: tuple[float, float], y: tuple[float, float]
) -> Tile | None:
    """What stands where there is no result; ``None`` where there is one."""
    if (row, column) in shown.results:
        return None
    gone = shown.missing.get((row, column))
    if gone is None:
        return Tile(x, y, (UNKNOWN,), f"{row} on {column}: not part of the study", quiet=True)
    return Tile(x, y, (gone.word,), f"{row} on {column}: {gone.why}", missing=True)


def _tile(
    shown: StudySheet, row: str, column: str, x: tuple[float, float], y: tuple[float, float], read: ReadTile
) -> Tile:
    empty = missing_tile(shown, row, column, x, y)
    if empty is not None:
        return empty
    result = shown.results[row, column]
    told, link = read(result), f"#{anchor(result)}"
    if isinstance(told, Unknown):
        return Tile(x, y, (UNKNOWN,), f"{row} on {column}: unknown, {told.why}", quiet=True, link=link)
    says = f"{row} on {column}: {told.says or told.texts[0]}"
    return Tile(x, y, told.texts, says, told.level, told.bars, link=link)


def anchor(result: StudyResult) -> str:
    """The name of a result's row in the table of everything."""
    return f"cell-{result.cell.id}"


def text_table(shown: StudySheet, columns: Sequence[str], read: ReadTile, title: str) -> Grid:
    """The same in words: what ``read`` says, or why nothing is known."""

    def text(row: str, column: str) -> str:
        result = shown.results.get((row, column))
        if result is None:
            gone = shown.missing.get((row, column))
            return gone.word if gone is not None else UNKNOWN
        told = read(result)
        return UNKNOWN if isinstance(told, Unknown) else told.texts[0]

    rows = tuple((row, *(text(row, column) for column in columns)) for row in shown.rows)
    return Grid(title, tuple(columns), rows, frozenset({0}), first="workload")
