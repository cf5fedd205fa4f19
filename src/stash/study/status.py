"""A study as it stands: what became of each cell, the order of the rest, and what that takes in time and money.

    cell = start + budget                    until one was measured at its place; then the median of those
    dollars = price · nodes · (its seconds, and the start of what is rented for it)

A batch that ran out of memory marks every larger one of the same workload at the same place, without running it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from stash.core.units import format_seconds
from stash.study.cells import Cell
from stash.study.fields import SkyTarget
from stash.study.study_folder import StudyEvent

CellState = Literal["to run", "done", "failed", "out of memory", "larger"]
"""*larger*: no smaller than a batch that ran out of memory. *lost* cells are to run."""


@dataclass(frozen=True)
class CellStanding:
    """Where one cell stands."""

    state: CellState
    why: str = ""
    last: StudyEvent | None = None
    """How it ended last; ``None`` if it never did."""


def standings(cells: Sequence[Cell], events: Iterable[StudyEvent], retry: bool = False) -> dict[str, CellStanding]:
    """Find each cell's standing by its id; with ``retry``, what failed or ran out of memory is to run once more."""
    ended = {event.cell: event for event in events if event.what == "ended"}
    found: dict[str, CellStanding] = {}
    for cell in cells:
        last = ended.get(cell.id)
        state: CellState = "to run"
        if (
            last is not None
            and last.ending is not None
            and last.ending != "lost"
            and (last.ending == "done" or not retry)
        ):
            state = last.ending
        found[cell.id] = CellStanding(state, last.why if last is not None else "", last)
    too_large: dict[object, int] = {}
    for cell in cells:
        if cell.batch is not None and found[cell.id].state == "out of memory":
            too_large[cell.alike] = min(cell.batch, too_large.get(cell.alike, cell.batch))
    for cell in cells:
        least = too_large.get(cell.alike)
        if found[cell.id].state == "to run" and least is not None and cell.batch is not None and cell.batch >= least:
            found[cell.id] = CellStanding("larger", f"batch {least} ran out of memory there")
    return found


HOUR = 3600.0
CLOUD_START = 300.0
"""Seconds from asking a cloud for machines until they train, assumed where the study says nothing; see ``start:``."""


@dataclass(frozen=True)
class CellEstimate:
    """The estimate of one cell; ``dollars`` is ``None`` where nothing is paid for by time."""

    seconds: float
    dollars: float | None
    measured: bool
    """Whether cells of the same place were measured already."""


def estimates(cells: Sequence[Cell], standings: Mapping[str, CellStanding]) -> dict[str, CellEstimate]:
    """Estimate each cell, by its id."""
    known: dict[tuple[str, int], list[float]] = {}
    for cell in cells:
        last = standings[cell.id].last
        if last is not None and last.ending == "done" and last.seconds is not None:
            known.setdefault((cell.place.name, cell.nodes), []).append(last.seconds)
    found = {}
    for cell in cells:
        measured, price = known.get((cell.place.name, cell.nodes), ()), cell.dollars_per_hour
        seconds = median(measured) if measured else cell.settings.start + cell.settings.budget
        dollars = None if price is None else price * seconds / HOUR
        found[cell.id] = CellEstimate(seconds, dollars, bool(measured))
    return found


def lease_start(cell: Cell) -> float:
    """Seconds until what is rented for a cell is there, and is probed if it is to be."""
    return _machines_start(cell) + _probe(cell)


def _probe(cell: Cell) -> float:
    """An emulated instance is not probed."""
    return 0.0 if cell.emulated is not None or cell.settings.probe is None else cell.settings.probe


def _machines_start(cell: Cell) -> float:
    """0 for machines that are there already."""
    if cell.place.target.start is not None:
        return cell.place.target.start
    return CLOUD_START if isinstance(cell.place.target, SkyTarget) else 0.0


@dataclass(frozen=True)
class StudyEstimate:
    """The estimate of all cells that are still to run, one after the other at each place."""

    cells: int
    seconds: float
    dollars: float | None
    """``None`` if nothing of it is paid for by time."""


def total(ahead: Sequence[Cell], each: Mapping[str, CellEstimate], lanes: Mapping[str, str]) -> StudyEstimate:
    """``lanes``: by cell's id, what runs one cell at a time; lanes run side by side, so the longest counts."""
    seconds: dict[str, float] = {}
    dollars: float | None = None
    held: dict[str, tuple[str, int]] = {}
    for cell in ahead:
        lane, lease = lanes[cell.id], (cell.place.name, cell.nodes)
        start = lease_start(cell) if held.get(lane) != lease else 0.0
        held[lane] = lease
        seconds[lane] = seconds.get(lane, 0.0) + start + each[cell.id].seconds
        price = cell.dollars_per_hour
        if price is not None:
            dollars = (dollars or 0.0) + price * (start + each[cell.id].seconds) / HOUR
    return StudyEstimate(len(ahead), max(seconds.values(), default=0.0), dollars)


def assumptions(cells: Iterable[Cell], each: Mapping[str, CellEstimate]) -> tuple[str, ...]:
    """What time and price were computed from, in sentences."""
    lines: dict[str, None] = {}
    free: dict[str, None] = {}
    for cell in cells:
        place, settings = cell.place, cell.settings
        if each[cell.id].measured:
            lines[f"{place.name}: cells take as long as those measured there (median)."] = None
        else:
            start, budget = format_seconds(settings.start), format_seconds(settings.budget)
            lines[f"A cell takes {start} to its first block and the whole budget of {budget}."] = None
        rented = _machines_start(cell)
        if rented:
            lines[f"{place.name}: machines take {format_seconds(rented)} to be there (`start:`)."] = None
        if _probe(cell):
            lines[f"Machines are probed once, {format_seconds(_probe(cell))} at most (`probe:`)."] = None
        if place.dollars_per_hour is not None:
            lines[f"{place.name}: ${place.dollars_per_hour:.4g} an hour of a node, {place.price_source}."] = None
        else:
            free[place.name] = None
        if cell.emulated is not None:
            lines.update(dict.fromkeys(cell.emulated.facts))
    unpaid = [f"Not paid for by time: {', '.join(free)}."] if free else []
    return (*unpaid, *lines)


def ordered(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """All cells once, in the order of running: what shows most for least comes first.

    A broken place shows in its first cell, whichever that is, so every place runs one small cell before the grid
    begins, the cheapest place first. Then one repeat of everything before the next, and small batches before large
    ones, since one that is out of memory spares those above it. Cells that share what is rented stay together.
    """
    positions = {cell.place.name: number for number, cell in reversed(list(enumerate(cells)))}

    def cost(cell: Cell) -> tuple[float, int]:
        return (cell.dollars_per_hour or 0.0, positions[cell.place.name])

    def size(cell: Cell) -> tuple[float, float, int]:
        return (cell.nodes, cell.size, cell.batch or 0)

    first: dict[str, Cell] = {}
    for cell in sorted(cells, key=lambda cell: (cell.repeat, *size(cell))):
        first.setdefault(cell.place.name, cell)
    pilots = sorted(first.values(), key=cost)
    chosen = {cell.id for cell in pilots}
    rest = [cell for cell in cells if cell.id not in chosen]
    place_price = {cell.place.name: (cell.place.dollars_per_hour or 0.0) for cell in cells}
    rest.sort(
        key=lambda cell: (
            cell.repeat, place_price[cell.place.name], positions[cell.place.name], cell.nodes, cell.size,
            cell.workload, cell.batch or 0,
        )
    )  # fmt: skip
    return (*pilots, *rest)


@dataclass(frozen=True)
class StudyReading:
    """Everything there is to say of a study before it goes on."""

    name: str
    cells: tuple[Cell, ...]
    """In the order in which they are run."""
    standings: Mapping[str, CellStanding]
    estimates: Mapping[str, CellEstimate]

    @property
    def ahead(self) -> tuple[Cell, ...]:
        """The cells that are to run."""
        return tuple(cell for cell in self.cells if self.standings[cell.id].state == "to run")

    @property
    def assumptions(self) -> tuple[str, ...]:
        return assumptions(self.ahead, self.estimates)

    @property
    def paid(self) -> bool:
        """Whether going on costs money."""
        return any(cell.dollars_per_hour is not None for cell in self.ahead)

    def counts(self, cells: Sequence[Cell] | None = None) -> dict[CellState, int]:
        """How many of the cells (all) stand how."""
        found: dict[CellState, int] = {}
        for cell in self.cells if cells is None else cells:
            state = self.standings[cell.id].state
            found[state] = found.get(state, 0) + 1
        return found

    def takes(self, lanes: Mapping[str, str], cells: Sequence[Cell] | None = None) -> StudyEstimate:
        """What those of ``cells`` (all) take that are to run; ``lanes`` as ``estimate.total`` has them."""
        chosen = [cell for cell in self.ahead if cells is None or cell in cells]
        return total(chosen, self.estimates, lanes)


def read(name: str, cells: Sequence[Cell], events: Sequence[StudyEvent], retry: bool = False) -> StudyReading:
    """``retry``: what failed is to run once more."""
    order = ordered(cells)
    found = standings(order, events, retry)
    return StudyReading(name, order, found, estimates(order, found))
