"""A study as it stands: what became of each cell, the order of the rest, and what that takes in time and money.

    cell = start + budget                    until one was measured at its place; then the median of those
    dollars = price · nodes · (its seconds, and the start of what is rented for it)

A batch that ran out of memory marks every larger one of the same workload at the same place, without running it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal, NamedTuple

from stash.study.cells import Cell
from stash.study.study_folder import StudyEvent

CellState = Literal["to run", "done", "failed", "out of memory", "larger"]
"""*larger*: no smaller than a batch that ran out of memory. *lost* cells are to run."""
HOUR = 3600.0
CELL_START = 60.0
"""Seconds from a cell's command to its first block, assumed until one was measured at its place."""
CLOUD_START = 300.0
"""Seconds from asking a cloud for machines until they train."""


@dataclass(frozen=True)
class CellStanding:
    """Where one cell stands."""

    state: CellState
    why: str = ""
    last: StudyEvent | None = None
    """How it ended last; ``None`` if it never did."""


def standings(
    cells: Sequence[Cell], events: Iterable[StudyEvent], retry: bool = False
) -> dict[str, CellStanding]:
    """Find each cell's standing by its id; with ``retry``, what failed or ran out of memory is to run once more."""
    ended = {event.cell: event for event in events if event.what == "ended"}
    found: dict[str, CellStanding] = {}
    too_large: dict[object, int] = {}
    for cell in cells:
        last = ended.get(cell.id)
        state: CellState = "to run"
        if last is not None and last.ending is not None and last.ending != "lost":
            state = last.ending if last.ending == "done" or not retry else "to run"
        found[cell.id] = CellStanding(state, last.why if last is not None else "", last)
        if cell.batch is not None and state == "out of memory":
            too_large[cell.group_key] = min(cell.batch, too_large.get(cell.group_key, cell.batch))
    for cell in cells:
        least = too_large.get(cell.group_key)
        if (
            found[cell.id].state == "to run"
            and least is not None
            and cell.batch is not None
            and cell.batch >= least
        ):
            found[cell.id] = CellStanding("larger", f"batch {least} ran out of memory there")
    return found


class StudyEstimate(NamedTuple):
    """The estimate of all cells that are still to run, one after the other in each lane."""

    cells: int
    seconds: float
    dollars: float | None
    """``None`` if nothing of it is paid for by time."""


def order_cells(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """All cells once, in the order of running: what shows most for least comes first.

    A broken place shows in its first cell, whichever that is, so every place runs one small cell before the grid
    begins, the cheapest place first. Then one repeat of everything before the next, and small batches before large
    ones, since one that is out of memory spares those above it. Cells that share what is rented stay together.
    """
    positions = {cell.place.name: number for number, cell in reversed(list(enumerate(cells)))}

    def place(cell: Cell) -> tuple[float, int]:
        return (
            cell.place.dollars_per_hour if cell.is_rented and cell.place.dollars_per_hour else 0.0,
            positions[cell.place.name],
        )

    grid = sorted(cells, key=lambda cell: (cell.repeat, *place(cell), cell.nodes, *cell.size_order))
    first: dict[str, Cell] = {}
    for cell in grid:
        first.setdefault(cell.place.name, cell)
    pilots = {cell.id for cell in first.values()}
    return (*first.values(), *(cell for cell in grid if cell.id not in pilots))


@dataclass(frozen=True)
class StudyReading:
    """Everything there is to say of a study before it goes on."""

    name: str
    cells: tuple[Cell, ...]
    """In the order in which they are run."""
    standings: Mapping[str, CellStanding]
    seconds: Mapping[str, float]
    """What each cell takes, as estimated."""

    @property
    def ahead(self) -> tuple[Cell, ...]:
        """The cells that are to run."""
        return tuple(cell for cell in self.cells if self.standings[cell.id].state == "to run")

    def counts(self, cells: Sequence[Cell]) -> Counter[CellState]:
        """How many of the cells stand how."""
        return Counter(self.standings[cell.id].state for cell in cells)

    @property
    def remaining_estimate(self) -> StudyEstimate:
        """What the cells take that are to run."""
        # ``each``: seconds by cell's id. Lanes run side by side, so the longest counts.
        seconds: dict[str, float] = {}
        rented: dict[str, str] = {}
        dollars: float | None = None
        cells = 0
        for cell in self.ahead:
            cells += 1
            start = (
                CLOUD_START if cell.is_rented and rented.get(cell.lane) != cell.column_name else 0.0
            )
            rented[cell.lane] = cell.column_name
            takes = start + self.seconds[cell.id]
            seconds[cell.lane] = seconds.get(cell.lane, 0.0) + takes
            if cell.dollars_per_hour is not None:
                dollars = (dollars or 0.0) + cell.dollars_per_hour * takes / HOUR
        return StudyEstimate(cells, max(seconds.values(), default=0.0), dollars)


def read_standings(
    name: str, cells: Sequence[Cell], events: Sequence[StudyEvent], retry: bool = False
) -> StudyReading:
    """``retry``: what failed is to run once more."""
    order = order_cells(cells)
    found = standings(order, events, retry)
    known: dict[str, list[float]] = {}
    for cell in order:
        last = found[cell.id].last
        if last is not None and last.ending == "done" and last.seconds is not None:
            known.setdefault(cell.column_name, []).append(last.seconds)
    seconds = {
        cell.id: median(known[cell.column_name])
        if cell.column_name in known
        else CELL_START + cell.settings.budget
        for cell in order
    }
    return StudyReading(name, order, found, seconds)
