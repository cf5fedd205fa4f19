"""How a study stands, before it goes on: as a page, as the files and commands to come, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stash.core.formatting import span
from stash.core.units import counted
from stash.study.cells import Cell
from stash.study.status import CellState, StudyEstimate, StudyReading
from stash.ui.charts.chart import Grid
from stash.ui.page import Chapter, Page

_WORDS: dict[CellState, str] = {
    "to run": "to run",
    "done": "done",
    "failed": "failed",
    "out of memory": "no memory",
    "larger": "too large",
}
_NOT_IN_IT = "."


def page(reading: StudyReading, lanes: Mapping[str, str], spent: float = 0.0, results: str = "") -> Page:
    """Its matrix, what each place takes, and on what that rests; ``lanes``: what runs each cell, by its id."""
    head, *rows = matrix(reading)
    failures = tuple(
        f"{cell.title}: {reading.standings[cell.id].why}"
        for cell in reading.cells
        if reading.standings[cell.id].state in ("failed", "out of memory")
    )
    lists = (("failed", "What failed", failures), ("assumed", "Assumed", reading.assumptions))
    return Page(
        title=f"{reading.name}: {counted(len(reading.cells), 'cell')}",
        verdict=(_summary(reading, reading.takes(lanes), spent),),
        grids=(Grid("", head[1:], tuple(rows), frozenset(range(len(head)))), *_takes(reading, lanes)),
        chapters=tuple(Chapter(name, title, points=points, brief=True) for name, title, points in lists if points),
        footer=f"Profiles go to {results}." if results else "",
    )


def _summary(reading: StudyReading, takes: StudyEstimate, spent: float) -> str:
    already = f"; ${spent:,.2f} spent until now" if spent else ""
    if not takes.cells:
        return f"{states(reading)}{already}."
    money = "costs nothing by time" if takes.dollars is None else f"costs about ${takes.dollars:,.2f}"
    return f"{states(reading)}; what is left takes about {span(takes.seconds)} and {money}{already}."


def states(reading: StudyReading) -> str:
    """``"20 to run, 3 done, 1 failed"``."""
    counts = reading.counts()
    return ", ".join(f"{counts[state]} {_WORDS[state]}" for state in _WORDS if state in counts)


def matrix(reading: StudyReading) -> tuple[tuple[str, ...], ...]:
    """How every combination stands, with heads."""
    columns = dict.fromkeys(where(cell) for cell in reading.cells)
    rows: dict[str, dict[str, list[Cell]]] = {}
    for cell in sorted(reading.cells, key=lambda cell: (cell.size, cell.workload, cell.batch or 0)):
        rows.setdefault(what(cell), {}).setdefault(where(cell), []).append(cell)
    body = [(name, *(_state(reading, cells.get(column, ())) for column in columns)) for name, cells in rows.items()]
    return (("", *columns), *body)


def what(cell: Cell) -> str:
    """``"resnet18 32"``: the row of a matrix."""
    return cell.workload if cell.batch is None else f"{cell.workload} {cell.batch}"


def where(cell: Cell) -> str:
    """``"2 × p3.8xlarge"``: its column."""
    return cell.place.name if cell.nodes == 1 else f"{cell.nodes} × {cell.place.name}"


def missing_word(state: CellState) -> str:
    """Say why a combination has no result: a profile that was measured and cannot be read is gone."""
    return "unreadable" if state == "done" else _WORDS[state]


def _state(reading: StudyReading, cells: Sequence[Cell]) -> str:
    """Of all repeats: one word if they agree, else how many stand how."""
    if not cells:
        return _NOT_IN_IT
    counts = reading.counts(cells)
    if len(counts) == 1:
        return _WORDS[next(iter(counts))]
    return ", ".join(f"{counts[state]} {_WORDS[state]}" for state in _WORDS if state in counts)


def _takes(reading: StudyReading, lanes: Mapping[str, str]) -> tuple[Grid, ...]:
    rows = []
    for column in dict.fromkeys(where(cell) for cell in reading.ahead):
        own = [cell for cell in reading.ahead if where(cell) == column]
        takes = reading.takes(lanes, own)
        price = "-" if takes.dollars is None else f"${takes.dollars:,.2f}"
        rows.append((column, str(takes.cells), span(takes.seconds), price))
    return (Grid("", ("cells", "time", "price"), tuple(rows), frozenset({0}), first="place"),) if rows else ()


def script(reading: StudyReading, described: Mapping[str, str]) -> str:
    """What will be run for each cell ahead, as it will be written and typed; ``described`` by cell's id."""
    steps = [(cell, described[cell.id]) for cell in reading.ahead if cell.id in described]
    return "".join(
        f"\n# --- {number} of {len(steps)}: {cell.title}\n{text}\n" for number, (cell, text) in enumerate(steps, 1)
    )


SCHEMA = 1
"""Of the document below, a contract (``docs/format.md``)."""


def document(
    reading: StudyReading, lanes: Mapping[str, str], described: Mapping[str, Any], spent: float, results: str
) -> dict[str, Any]:
    """``described``: files and commands by cell's id."""
    takes = reading.takes(lanes)
    return {
        "schema": SCHEMA,
        "study": reading.name,
        "results": results,
        "cells": [_cell(reading, cell, described.get(cell.id)) for cell in reading.cells],
        "to_run": {"cells": takes.cells, "seconds": takes.seconds, "dollars": takes.dollars},
        "spent_dollars": spent,
        "assumptions": list(reading.assumptions),
    }


def _cell(reading: StudyReading, cell: Cell, described: Any) -> dict[str, Any]:
    standing, estimate = reading.standings[cell.id], reading.estimates[cell.id]
    last = standing.last
    return {
        "id": cell.id,
        "workload": cell.workload,
        "batch": cell.batch,
        "target": cell.place.name,
        "engine": cell.place.target.engine,
        "nodes": cell.nodes,
        "repeat": cell.repeat,
        "state": standing.state,
        "why": standing.why,
        "artefact": last.artefact if last is not None and last.artefact else None,
        "seconds": last.seconds if last is not None else None,
        "dollars": last.dollars if last is not None else None,
        "estimated_seconds": estimate.seconds,
        "estimated_dollars": estimate.dollars,
        "submission": described,
    }
