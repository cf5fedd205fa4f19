"""A study as it stands: its cells in the order of running, what became of each, and what the rest takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stash.derive.study.cells import Cell
from stash.derive.study.estimate import CellEstimate, StudyEstimate, assumptions, estimates, total
from stash.derive.study.order import ordered
from stash.derive.study.standing import CellStanding, CellState, standings
from stash.keep.study.journal import StudyEvent


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
