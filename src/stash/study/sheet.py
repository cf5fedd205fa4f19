"""A study as a matrix and as the table of everything: a row a workload at a batch, a column a place."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from stash.core.formatting import quantity
from stash.core.ladder import STALLS
from stash.core.printable import strict_json
from stash.core.units import pace
from stash.study.cells import Cell
from stash.study.overview import missing_word, what, where
from stash.study.results import StudyResult
from stash.study.status import StudyReading
from stash.ui.charts.chart import Axis, Chart, Drawn, Grid, GridLink, Lane, Legend, Tile, TileBar, band
from stash.ui.page import Download

# A study as a sheet: a row a workload at a batch, a column a place, in each cell a result or why there is none.

UNKNOWN = "–"
_MAX_COLUMNS = 8
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

    def parts(self) -> list[tuple[str, ...]]:
        """The columns in as many charts as they need, none with one column alone."""
        size = ceil(len(self.columns) / ceil(len(self.columns) / _MAX_COLUMNS))
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
    rows = dict.fromkeys(what(cell) for cell in cells)
    columns = dict.fromkeys(where(cell) for cell in reading.cells)
    return StudySheet(tuple(rows), tuple(columns), results, missing)


@dataclass(frozen=True)
class TileText:
    """What a cell of a matrix shows."""

    texts: tuple[str, ...]
    """From the longest to the shortest."""
    tip: str = ""
    bars: tuple[TileBar, ...] = ()


@dataclass(frozen=True)
class Unknown:
    """What a cell of a matrix cannot show."""

    why: str


ReadTile = Callable[[StudyResult], TileText | Unknown]


Stretch = tuple[float, float]
DrawCell = Callable[[str, str, Stretch, Stretch], Iterable[Drawn]]
"""What is drawn of the result in a row and a column, in the cell that stands at ``x`` and ``y``."""


def matrix_charts(
    shown: StudySheet,
    name: str,
    title: str,
    how: str,
    draw: DrawCell,
    table: Callable[[Sequence[str]], Grid],
    keys: Sequence[Legend] = (),
) -> tuple[Chart, ...]:
    """Charts with every result, some places a chart, each with the ``table`` of its places; hatched where none is."""
    charts = []
    for number, columns in enumerate(shown.parts(), 1):
        marks: list[Drawn] = []
        for line, row in enumerate(shown.rows):
            for at, column in enumerate(columns):
                x, y = (at / len(columns), (at + 1) / len(columns)), band(line, len(shown.rows), _WHOLE)
                gone = shown.missing.get((row, column))
                if (row, column) in shown.results:
                    marks += draw(row, column, x, y)
                elif gone is None:
                    marks.append(Tile(x, y, (UNKNOWN,), f"{row} on {column}: not part of the study", quiet=True))
                else:
                    marks.append(Tile(x, y, (gone.word,), f"{row} on {column}: {gone.why}", missing=True))
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
                table=table(columns),
            )
        )
    return tuple(charts)


def tile_charts(
    shown: StudySheet, read: ReadTile, name: str, title: str, how: str, keys: Sequence[Legend] = ()
) -> tuple[Chart, ...]:
    """The same with what ``read`` says of every result, as a tile each and as text in the table."""

    def draw(row: str, column: str, x: Stretch, y: Stretch) -> Iterable[Drawn]:
        result = shown.results[row, column]
        found, link = read(result), f"#{anchor(result)}"
        if isinstance(found, Unknown):
            yield Tile(x, y, (UNKNOWN,), f"{row} on {column}: unknown, {found.why}", quiet=True, link=link)
        else:
            tip = f"{row} on {column}: {found.tip or found.texts[0]}"
            yield Tile(x, y, found.texts, tip, bars=found.bars, link=link)

    def text(row: str, column: str) -> str:
        result = shown.results.get((row, column))
        if result is None:
            gone = shown.missing.get((row, column))
            return gone.word if gone is not None else UNKNOWN
        found = read(result)
        return UNKNOWN if isinstance(found, Unknown) else found.texts[0]

    def table(columns: Sequence[str]) -> Grid:
        rows = tuple((row, *(text(row, column) for column in columns)) for row in shown.rows)
        return Grid(title, tuple(columns), rows, frozenset({0}), first="workload")

    return matrix_charts(shown, name, title, how, draw, table, keys)


def anchor(result: StudyResult) -> str:
    """The name of a result's row in the table of everything."""
    return f"cell-{result.cell.id}"


# The table of everything: every combination of a study, measured or not, to sort, to filter and to take along.

SCHEMA = 1
_TEXTS = ("workload", "place", "state", "profile")
_FILTERS = ("workload", "batch", "place", "nodes", "state")


def table(found: Sequence[StudyResult]) -> Grid:
    """Every combination that is measured."""
    present = [stall for stall in STALLS if any(stall in each.shares for each in found)]
    rows = tuple(
        (f"{what(each.cell)} on {where(each.cell)}", str(each.repeats), *_measured(each, present)) for each in found
    )
    return Grid(
        title="Every combination: shares of the step, mean over repeats",
        first="combination",
        head=("repeats", "step", "samples/s", *present, "$/million samples"),
        rows=rows,
        texts=frozenset({0}),
    )


def whole_table(reading: StudyReading, found: Sequence[StudyResult], files: Mapping[str, str]) -> Grid:
    """Every combination of the study, with a link to each profile; ``files``: where profiles are, by cell's id."""
    present = [stall for stall in STALLS if any(stall in each.shares for each in found)]
    head = ("workload", "batch", "place", "nodes", "state", "profile", "devices", "repeats", "step", "samples/s",
            *present, "$/million samples")  # fmt: skip
    rows, anchors, links = [], [], {}
    for number, (cell, result) in enumerate(_combinations(reading, found)):
        profiles = () if result is None else tuple(_link(reading, each, files) for each in result.cells)
        batch = UNKNOWN if cell.batch is None else str(cell.batch)
        state = _state(reading, cell, result, profiles, present)
        rows.append((cell.workload, batch, cell.place.name, str(cell.nodes), *state))
        anchors.append("" if result is None else anchor(result))
        if profiles:
            links[number, head.index("profile")] = profiles
    return Grid(
        title="Every combination: shares of the step, mean over repeats",
        first=head[0],
        head=head[1:],
        rows=tuple(rows),
        texts=frozenset(head.index(name) for name in _TEXTS),
        below="A profile's name is its id in the study's store: `stash show --store STORE ID`. A link leads to the "
        "file where it lies next to this page.",
        filters=tuple(head.index(name) for name in _FILTERS),
        anchors=tuple(anchors),
        links=links,
    )


def _combinations(reading: StudyReading, found: Sequence[StudyResult]) -> list[tuple[Cell, StudyResult | None]]:
    """A cell of each, and its result if there is one; small workloads first."""
    results = {(each.cell.alike, each.cell.batch): each for each in found}
    cells: dict[Any, Cell] = {}
    for cell in reading.cells:
        cells.setdefault((cell.alike, cell.batch), cell)
    order = sorted(cells, key=lambda at: (cells[at].size, cells[at].workload, cells[at].batch or 0))
    return [(cells[at], results.get(at)) for at in order]


def _state(
    reading: StudyReading,
    cell: Cell,
    result: StudyResult | None,
    profiles: Sequence[GridLink],
    present: Sequence[str],
) -> tuple[str, ...]:
    if result is None:
        return (missing_word(reading.standings[cell.id].state), *(UNKNOWN for _ in range(len(present) + 6)))
    ids = " ".join(each.text for each in profiles)
    return ("done", ids, str(result.devices), str(result.repeats), *_measured(result, present))


def _measured(result: StudyResult, present: Sequence[str]) -> tuple[str, ...]:
    dollars = result.dollars_per_million
    return (
        quantity(result.step, "seconds"),
        "unknown" if result.samples_per_second is None else pace(result.samples_per_second),
        *(f"{result.shares[stall]:.1%}" if stall in result.shares else UNKNOWN for stall in present),
        "no price" if dollars is None else f"${dollars:.2f}",
    )


def _link(reading: StudyReading, cell: Cell, files: Mapping[str, str]) -> GridLink:
    last = reading.standings[cell.id].last
    name = last.artefact if last is not None and last.artefact else cell.id
    return GridLink(name.removesuffix(".stash.json"), files.get(cell.id, ""))


# To take along.


def downloads(reading: StudyReading, found: Sequence[StudyResult]) -> tuple[Download, ...]:
    """Every combination's numbers, unrounded, as CSV and as JSON (``docs/format.md``)."""
    rows = [_row(reading, cell, result) for cell, result in _combinations(reading, found)]
    document = {"schema": SCHEMA, "study": reading.name, "combinations": rows}
    return (
        Download(f"{reading.name}.csv", "text/csv", _as_csv(rows)),
        Download(f"{reading.name}.json", "application/json", strict_json(document)),
    )


def _row(reading: StudyReading, cell: Cell, result: StudyResult | None) -> dict[str, Any]:
    standing = reading.standings[cell.id]
    row: dict[str, Any] = {
        "workload": cell.workload,
        "batch": cell.batch,
        "place": cell.place.name,
        "engine": cell.place.target.engine,
        "nodes": cell.nodes,
        "state": "done" if result is not None else missing_word(standing.state),
        "why": None if result is not None else standing.why or None,
    }
    return row | (_numbers(result) if result is not None else dict.fromkeys(_NUMBERS))


def _numbers(result: StudyResult) -> dict[str, Any]:
    numbers = (
        result.devices, result.repeats, result.step.value, result.step.low, result.step.high,
        result.samples_per_second, result.warm_seconds, result.cold_seconds, result.slow_down,
        result.dollars_per_hour, result.dollars_per_million, result.layers, result.gradient_bytes,
        *(result.busy.get(each) for each in ("gpu", "cpu")),
        *(result.seconds.get(stall) for stall in STALLS),
        *(result.paper.get(stall) for stall in _PAPER),
        " ".join(each.id for each in result.cells),
    )  # fmt: skip
    return dict(zip(_NUMBERS, numbers, strict=True))


_PAPER = ("interconnect", "network", "prep", "fetch")
_NUMBERS = (
    "devices", "repeats", "step_seconds", "step_low", "step_high", "samples_per_second", "warm_seconds",
    "cold_seconds", "slow_down", "dollars_per_hour", "dollars_per_million", "layers", "gradient_bytes", "gpu_busy",
    "cpu_busy", *(f"{stall}_seconds" for stall in STALLS), *(f"paper_{stall}_pct" for stall in _PAPER), "cells",
)  # fmt: skip


def _as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
