"""What the journal says of each cell, and what is still rented as far as it knows.

A batch that ran out of memory marks every larger one of the same workload at the same place, without running it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from stash.derive.study.cells import Cell
from stash.keep.study.journal import StudyEvent

CellState = Literal["to run", "done", "failed", "out of memory", "larger"]
"""*larger*: than a batch that ran out of memory. *lost* cells are to run."""


@dataclass(frozen=True)
class CellStanding:
    """Where one cell stands."""

    state: CellState
    why: str = ""
    last: StudyEvent | None = None
    """How it ended last; ``None`` if it never did."""


@dataclass(frozen=True)
class OpenLease:
    """Something rented that was not seen to end."""

    name: str
    opened: float
    """Seconds since 1970."""
    dollars_per_hour: float | None
    release: tuple[tuple[str, ...], ...] = ()
    check: tuple[str, ...] = ()
    cell: str = ""
    """The cell that was last started there, and did not end."""
    began: float = 0.0
    """When that was."""


def standings(cells: Sequence[Cell], events: Iterable[StudyEvent], retry: bool = False) -> dict[str, CellStanding]:
    """By cell's id; with ``retry``, what failed or ran out of memory is to run once more."""
    ended = {event.cell: event for event in events if event.what == "ended"}
    found = {cell.id: _of(ended.get(cell.id), retry) for cell in cells}
    too_large = _smallest_too_large(cells, found)
    for cell in cells:
        least = too_large.get(cell.alike)
        if found[cell.id].state == "to run" and least is not None and cell.batch is not None and cell.batch > least:
            found[cell.id] = CellStanding("larger", f"batch {least} ran out of memory there")
    return found


def _of(last: StudyEvent | None, retry: bool) -> CellStanding:
    if last is None or last.ending == "lost" or last.ending is None:
        return CellStanding("to run", last.why if last is not None else "", last)
    if retry and last.ending != "done":
        return CellStanding("to run", last.why, last)
    return CellStanding(last.ending, last.why, last)


def _smallest_too_large(cells: Sequence[Cell], found: Mapping[str, CellStanding]) -> dict[object, int]:
    least: dict[object, int] = {}
    for cell in cells:
        if cell.batch is not None and found[cell.id].state == "out of memory":
            least[cell.alike] = min(cell.batch, least.get(cell.alike, cell.batch))
    return least


def open_leases(events: Iterable[StudyEvent]) -> tuple[OpenLease, ...]:
    """Those opened and not released, in the order in which they were opened."""
    leases: dict[str, OpenLease] = {}
    for event in events:
        if event.what == "opened":
            leases[event.lease] = OpenLease(event.lease, event.at, event.dollars_per_hour, event.release, event.check)
        elif event.what == "released":
            leases.pop(event.lease, None)
        elif event.lease in leases:
            cell = event.cell if event.what == "started" else ""
            leases[event.lease] = replace(leases[event.lease], cell=cell, began=event.at)
    return tuple(leases.values())


def spent(events: Iterable[StudyEvent]) -> float:
    """Dollars of everything that was released."""
    return sum(event.dollars or 0.0 for event in events if event.what == "released")
