"""What a study takes before it is begun: seconds and dollars of every cell, and what was assumed for them.

    cell = start + budget                    until one was measured at its place; then the median of those
    dollars = price · nodes · (its seconds, and the start of what is rented for it)

Cells end sooner where precision is reached before the budget ends. Knows nothing of limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from stash.base.words.units import format_seconds
from stash.derive.study.cells import Cell
from stash.derive.study.standing import CellStanding
from stash.keep.study.fields import SkyTarget

HOUR = 3600.0
CLOUD_START = 300.0
"""Seconds from asking a cloud for machines until they train, assumed where the study says nothing; see ``start:``."""


@dataclass(frozen=True)
class CellEstimate:
    """Of one cell; ``dollars`` is ``None`` where nothing is paid for by time."""

    seconds: float
    dollars: float | None
    measured: bool
    """Whether cells of the same place were measured already."""


def estimates(cells: Sequence[Cell], standings: Mapping[str, CellStanding]) -> dict[str, CellEstimate]:
    """By cell's id."""
    known: dict[tuple[str, int], list[float]] = {}
    for cell in cells:
        last = standings[cell.id].last
        if last is not None and last.ending == "done" and last.seconds is not None:
            known.setdefault((cell.place.name, cell.nodes), []).append(last.seconds)
    return {cell.id: _estimate(cell, known.get((cell.place.name, cell.nodes), ())) for cell in cells}


def _estimate(cell: Cell, measured: Sequence[float]) -> CellEstimate:
    seconds = median(measured) if measured else cell.settings.start + cell.settings.budget
    price = cell.dollars_per_hour
    return CellEstimate(seconds, None if price is None else price * seconds / HOUR, bool(measured))


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
    """Of all cells that are still to run, one after the other at each place."""

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
    said: dict[str, None] = {}
    free: dict[str, None] = {}
    for cell in cells:
        place, settings = cell.place, cell.settings
        if each[cell.id].measured:
            said[f"{place.name}: cells take as long as those measured there (median)."] = None
        else:
            start, budget = format_seconds(settings.start), format_seconds(settings.budget)
            said[f"A cell takes {start} to its first block and the whole budget of {budget}."] = None
        rented = _machines_start(cell)
        if rented:
            said[f"{place.name}: machines take {format_seconds(rented)} to be there (`start:`)."] = None
        if _probe(cell):
            said[f"Machines are probed once, {format_seconds(_probe(cell))} at most (`probe:`)."] = None
        if place.dollars_per_hour is not None:
            said[f"{place.name}: ${place.dollars_per_hour:.4g} an hour of a node, {place.price_source}."] = None
        else:
            free[place.name] = None
        if cell.emulated is not None:
            said.update(dict.fromkeys(cell.emulated.facts))
    unpaid = [f"Not paid for by time: {', '.join(free)}."] if free else []
    return (*unpaid, *said)
