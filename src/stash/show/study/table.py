"""The table of everything: every combination of a study, measured or not, to sort, to filter and to take along."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from stash.base.ladder import STALLS
from stash.base.printable import strict_json
from stash.base.words.quantities import quantity
from stash.base.words.units import pace
from stash.derive.study.cells import Cell
from stash.derive.study.reading import StudyReading
from stash.derive.study.results import StudyResult
from stash.show.grid import Grid, GridLink
from stash.show.report.page import Download
from stash.show.study.sheet import UNKNOWN, anchor
from stash.show.study.view import missing_word, what, where

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
        rows.append((*_named(cell), *_state(reading, cell, result, profiles, present)))
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
        "file where it lies beside this page.",
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


def _named(cell: Cell) -> tuple[str, ...]:
    return cell.workload, UNKNOWN if cell.batch is None else str(cell.batch), cell.place.name, str(cell.nodes)


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


# To take along ---------------------------------------------------------------------------------------------------


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
