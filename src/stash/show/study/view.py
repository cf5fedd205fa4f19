"""What is said of a study before it goes on: its matrix, what each place takes, and on what that rests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stash.base.words.counting import counted
from stash.derive.study.cells import Cell
from stash.derive.study.estimate import StudyEstimate
from stash.derive.study.reading import StudyReading
from stash.derive.study.standing import CellState

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
