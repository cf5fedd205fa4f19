"""How a study stands, before it goes on: as a page, and as the files and commands to come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stash.core.formatting import format_span
from stash.core.units import format_count
from stash.study.cells import Cell
from stash.study.status import CELL_START, CLOUD_START, CellState, StudyReading
from stash.ui.charts.chart import Grid
from stash.ui.page import Chapter, Page

_WORDS: dict[CellState, str] = {
    "to run": "to run",
    "done": "done",
    "failed": "failed",
    "out of memory": "no memory",
    "larger": "too large",
}


def page(reading: StudyReading, spent: float = 0.0, results: str = "") -> Page:
    """Its matrix, what is left, and on what that rests."""
    columns = tuple(dict.fromkeys(cell.column_name for cell in reading.cells))
    rows: dict[str, dict[str, list[Cell]]] = {}
    for cell in sorted(reading.cells, key=lambda cell: cell.size_order):
        rows.setdefault(cell.row_name, {}).setdefault(cell.column_name, []).append(cell)
    body = tuple(
        (row, *(_state(reading, of.get(column, [])) for column in columns))
        for row, of in rows.items()
    )
    failures = tuple(
        f"{cell.title}: {reading.standings[cell.id].why}"
        for cell in reading.cells
        if reading.standings[cell.id].state in ("failed", "out of memory")
    )
    lists = (("failed", "What failed", failures), ("assumed", "Assumed", _assumptions(reading)))
    takes = reading.remaining_estimate
    already = f"; ${spent:,.2f} spent until now" if spent else ""
    if not takes.cells:
        summary = f"{states_text(reading)}{already}."
    else:
        money = (
            "costs nothing by time"
            if takes.dollars is None
            else f"costs about ${takes.dollars:,.2f}"
        )
        summary = f"{states_text(reading)}; what is left takes about {format_span(takes.seconds)} and {money}{already}."
    return Page(
        title=f"{reading.name}: {format_count(len(reading.cells), 'cell')}",
        verdict=(summary,),
        grids=(Grid("", columns, body, frozenset(range(len(columns) + 1))),),
        chapters=tuple(
            Chapter(name, title, points=points, brief=True)
            for name, title, points in lists
            if points
        ),
        footer=f"Profiles go to {results}." if results else "",
    )


def states_text(reading: StudyReading) -> str:
    """``"20 to run, 3 done, 1 failed"``."""
    return _count_states(reading, reading.cells)


def _count_states(reading: StudyReading, cells: Sequence[Cell]) -> str:
    counts = reading.counts(cells)
    return ", ".join(f"{counts[state]} {word}" for state, word in _WORDS.items() if state in counts)


def missing_word(state: CellState) -> str:
    """Say why a combination has no result: a profile that was measured and cannot be read is gone."""
    return "unreadable" if state == "done" else _WORDS[state]


def _state(reading: StudyReading, repeats: list[Cell]) -> str:
    """Of all repeats: one word if they agree, else how many stand how."""
    states = [*reading.counts(repeats)]
    return _WORDS[states[0]] if len(states) == 1 else _count_states(reading, repeats) or "."


def _assumptions(reading: StudyReading) -> tuple[str, ...]:
    """What time and price were computed from, and the facts of emulated instances."""
    if not reading.ahead:
        return ()
    first = f"A cell takes {CELL_START:.0f} s and its whole budget, or as long as those measured there (median)"
    lines = {f"{first}; clouds take {CLOUD_START / 60:.0f} min to start machines.": None}
    for cell in reading.ahead:
        place = cell.place
        if cell.dollars_per_hour is not None:
            lines[
                f"{place.name}: ${place.dollars_per_hour:.4g} an hour of a node, {place.price_source}."
            ] = None
        if cell.emulated is not None:
            lines.update(dict.fromkeys(cell.emulated.facts))
    return tuple(lines)


def script(reading: StudyReading, described: Mapping[str, str]) -> str:
    """What will be run for each cell ahead, as it will be written and typed; ``described`` by cell's id."""
    steps = enumerate(reading.ahead, 1)
    return "".join(
        f"\n# --- {number}: {cell.title}\n{described[cell.id]}\n" for number, cell in steps
    )
