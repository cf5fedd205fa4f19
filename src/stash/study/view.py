"""What is said of a study before it goes on: as text for a terminal, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from stash.core.units import counted
from stash.study.cells import Cell
from stash.study.status import CellState, StudyEstimate, StudyReading
from stash.ui.layout import INDENT, Renderer, paragraph, terminal_renderer

# View ------------------------------------------------------------------------------------------------------
# What is said of a study before it goes on: its matrix, what each place takes, and on what that rests.

_WORDS: dict[CellState, str] = {
    "to run": "to run",
    "done": "done",
    "failed": "failed",
    "out of memory": "no memory",
    "larger": "too large",
}
_NOT_IN_IT = "."


@dataclass(frozen=True)
class StudyView:
    """All texts of it; tables with their heads as first rows."""

    title: str
    summary: str
    matrix: tuple[tuple[str, ...], ...]
    """Workloads at a batch by places at a node count."""
    takes: tuple[tuple[str, ...], ...]
    """A row a place: cells ahead, time, price."""
    failures: tuple[str, ...]
    assumptions: tuple[str, ...]
    described: tuple[tuple[str, str], ...] = ()
    """Title and text of what will be run for each cell ahead, in order."""
    notes: tuple[str, ...] = ()


def view(
    reading: StudyReading,
    lanes: Mapping[str, str],
    described: Mapping[str, str] | None = None,
    spent: float = 0.0,
    results: str = "",
) -> StudyView:
    """``lanes``: what runs one cell at a time, by cell's id; ``described``: what will be run, by cell's id."""
    texts = described or {}
    steps = [(cell, texts[cell.id]) for cell in reading.ahead if cell.id in texts]
    return StudyView(
        title=f"{reading.name}: {counted(len(reading.cells), 'cell')}",
        summary=_summary(reading, reading.takes(lanes), spent),
        matrix=matrix(reading),
        takes=_takes(reading, lanes),
        failures=_failures(reading),
        assumptions=reading.assumptions,
        described=tuple(
            (f"{number} of {len(steps)}: {cell.title}", text) for number, (cell, text) in enumerate(steps, 1)
        ),
        notes=(f"Profiles go to {results}.",) if results else (),
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


def span(seconds: float) -> str:
    """``"45 s"``, ``"24 min"``, ``"3.5 h"``: of what is only estimated."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


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
    """For a combination that has no result: a profile that was measured and cannot be read is gone."""
    return "unreadable" if state == "done" else _WORDS[state]


def _state(reading: StudyReading, cells: Sequence[Cell]) -> str:
    """Of all repeats: one word if they agree, else how many stand how."""
    if not cells:
        return _NOT_IN_IT
    counts = reading.counts(cells)
    if len(counts) == 1:
        return _WORDS[next(iter(counts))]
    return ", ".join(f"{counts[state]} {_WORDS[state]}" for state in _WORDS if state in counts)


def _takes(reading: StudyReading, lanes: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    rows = [("place", "cells", "time", "price")]
    for column in dict.fromkeys(where(cell) for cell in reading.ahead):
        own = [cell for cell in reading.ahead if where(cell) == column]
        takes = reading.takes(lanes, own)
        price = "-" if takes.dollars is None else f"${takes.dollars:,.2f}"
        rows.append((column, str(takes.cells), span(takes.seconds), price))
    return tuple(rows) if len(rows) > 1 else ()


def _failures(reading: StudyReading) -> tuple[str, ...]:
    return tuple(
        f"{cell.title}: {reading.standings[cell.id].why}"
        for cell in reading.cells
        if reading.standings[cell.id].state in ("failed", "out of memory")
    )


# Terminal --------------------------------------------------------------------------------------------------
# A study as text for a terminal: the matrix, in as many parts as the screen needs, then what it takes and runs.

_GAP = 2
_STYLES = {"done": "color(72)", "failed": "color(167)", "no memory": "color(167)", "too large": "dim", ".": "dim"}
Rows = Sequence[Sequence[str]]


def _report(view: StudyView, width: int, colour: bool) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(" " * INDENT).append(view.title, style="bold")]
    parts += [Text(), *paragraph(view.summary, width, "", "")]
    for part in _in_parts(view.matrix, width):
        parts += [Text(), *_table(part, left=1)]
    if view.takes:
        parts += [Text(), *_table(view.takes, left=1, right=True)]
    for title, lines in (("What failed", view.failures), ("Assumed", view.assumptions)):
        if lines:
            parts += [Text(), Text(" " * INDENT).append(title, style="bold")]
            parts += [line for each in lines for line in paragraph(each, width, "- ", "dim")]
    return [*parts, *([Text()] if view.notes else []), *(p for n in view.notes for p in paragraph(n, width, "", ""))]


render: Renderer[StudyView] = terminal_renderer(_report, narrowest=60, widest=120)
"""Everything but what will be run, whose lines must stay as they are."""


def _in_parts(rows: Rows, width: int) -> list[list[list[str]]]:
    """The table's columns, the first repeated, in tables that fit."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    parts: list[list[int]] = [[]]
    room = width - INDENT - widths[0]
    left = room
    for column in range(1, len(widths)):
        needed = widths[column] + _GAP
        if needed > left and parts[-1]:
            parts.append([])
            left = room
        parts[-1].append(column)
        left -= needed
    return [[[row[0], *(row[column] for column in part)] for row in rows] for part in parts]


def _table(rows: Rows, left: int, right: bool = False) -> list[Text]:
    """Lines of a table whose first row is its head; from column ``left`` on, to the right if wanted."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for number, row in enumerate(rows):
        line = Text(" " * INDENT)
        for column, (cell, wide) in enumerate(zip(row, widths, strict=True)):
            text = cell.rjust(wide) if right and column >= left else cell.ljust(wide)
            line.append(text, style="dim" if number == 0 else _STYLES.get(cell, ""))
            line.append(" " * _GAP)
        lines.append(line)
    return lines


def script(view: StudyView) -> str:
    """What will be run for each cell, as it will be written and typed; empty if none is described."""
    return "".join(f"\n# --- {title}\n{text}\n" for title, text in view.described)


# Contract --------------------------------------------------------------------------------------------------
# A study as JSON for other programs; its keys are a contract (``docs/format.md``).

SCHEMA = 1


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
