"""Hadar (IPDPS 2024): GPUs have prices that rise as their node fills, and a job runs where its payoff is highest.

One GPU of type t on node h, of whose c GPUs γ are taken, costs k = U_min·(U_max/U_min)^(γ/c) per second, between the
least and the most utility per GPU-second that a waiting job can have on that type. A job's payoff is its utility less
Σ k·GPUs·seconds; it runs if that is above 0. No code of the authors is public: what they leave open is decided in
docs/decisions/fleets.md (31). Pure; knows neither clocks nor rounds before and after.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stash.schedule.matrix import RateTable
from stash.schedule.placement import GangPlace
from stash.schedule.records import Floats, WholeNumbers

BEAM = 4
"""States of the dynamic program that are kept after each job of the queue: the exact one has exponentially many."""
_BEAM_JOBS = 200
"""Queues longer than that keep one state."""


@dataclass(frozen=True)
class HadarRound:
    """What is known at the beginning of a round; arrays have one entry a job."""

    jobs: WholeNumbers
    work: Floats
    """Seconds of the whole job on its fastest type: what its utility counts."""
    left: Floats
    elapsed: Floats
    gpus: WholeNumbers
    running: Sequence[GangPlace]
    pause: Floats
    """Seconds that starting it somewhere else takes."""
    started: np.ndarray
    up: Sequence[int]
    """GPUs of each node."""
    kind_of: Sequence[int]
    down: set[int]


@dataclass(frozen=True)
class HadarChoice:
    """Who runs where, and α: the family of such policies is 2α-competitive in the total utility."""

    places: dict[int, GangPlace]
    rates: dict[int, float]
    alpha: float


class _Option(NamedTuple):
    payoff: float
    place: GangPlace
    rate: float


class _State(NamedTuple):
    """A partial choice over the queue."""

    payoff: float
    taken: tuple[int, ...]
    chosen: tuple[tuple[int, _Option], ...]


def utility(work: float, finish_after: float, elapsed: float) -> float:
    """Work/(f − submit): 1 for a job that was never kept from its fastest type, less the later it ends."""
    return work / (elapsed + finish_after)


def place(asked: HadarRound, table: RateTable, spreading: bool = True) -> HadarChoice:
    """The choice of highest payoff over the queue, as far as the beam reaches."""
    low, high, density = _bounds(asked, table)
    finite = [math.log(top / bottom) for top, bottom in zip(high, low, strict=True) if bottom > 0 < top]
    alpha = max([1.0, *finite])
    beam = BEAM if len(asked.jobs) <= _BEAM_JOBS else 1
    chooser = _Chooser(asked, table, low, high, spreading)
    full = tuple(asked.up[node] if node in asked.down else 0 for node in range(len(asked.up)))
    states, room = [_State(0.0, full, ())], sum(asked.up)
    for at in np.argsort(-density, kind="stable"):
        if density[at] <= 0:
            break
        following: dict[tuple[int, ...], _State] = {}
        for state in states:
            options = [state]
            best = chooser.best(int(at), state.taken)
            if best is not None:
                taken = list(state.taken)
                for node, gpus in best.place:
                    taken[node] += gpus
                after = _State(state.payoff + best.payoff, tuple(taken), (*state.chosen, (int(at), best)))
                options.append(after)
            for each in options:
                known = following.get(each.taken)
                if known is None or each.payoff > known.payoff:
                    following[each.taken] = each
        states = sorted(following.values(), key=lambda state: -state.payoff)[:beam]
        if all(sum(state.taken) >= room for state in states):
            break
    chosen = states[0].chosen
    return HadarChoice(
        {int(asked.jobs[at]): option.place for at, option in chosen},
        {int(asked.jobs[at]): option.rate for at, option in chosen},
        alpha,
    )


def _bounds(asked: HadarRound, table: RateTable) -> tuple[list[float], list[float], Floats]:
    """U_min and U_max per GPU-second by type, and each job's highest."""
    packed = table.packed[asked.jobs]
    with np.errstate(divide="ignore"):
        takes = np.where(packed > 0, asked.left[:, None] / packed, np.inf)
    takes = takes + (asked.pause * asked.started)[:, None]
    value = asked.work[:, None] / (asked.elapsed[:, None] + takes)
    per_second = np.where(np.isfinite(takes), value / (asked.gpus[:, None] * takes), 0.0)
    low, high = [], []
    for kind in range(packed.shape[1]):
        some = per_second[:, kind][per_second[:, kind] > 0]
        low.append(float(some.min()) if len(some) else 0.0)
        high.append(float(some.max()) if len(some) else 0.0)
    return low, high, np.asarray(per_second.max(axis=1), dtype=float)


class _Chooser:
    """The best placement of one job, given what is taken."""

    def __init__(
        self, asked: HadarRound, table: RateTable, low: Sequence[float], high: Sequence[float], spreading: bool
    ) -> None:
        self.asked, self.table, self.spreading = asked, table, spreading
        self.prices = [
            [low[kind] / math.e * (math.e * high[kind] / low[kind]) ** (taken / up) if low[kind] > 0 else 0.0
             for taken in range(up + 1)]
            for kind, up in zip(asked.kind_of, asked.up, strict=True)
        ]  # fmt: skip
        self.nodes = [
            [node for node, each in enumerate(asked.kind_of) if each == kind and node not in asked.down]
            for kind in range(table.packed.shape[1])
        ]

    def best(self, at: int, taken: tuple[int, ...]) -> _Option | None:
        """The option of highest payoff, if that is above 0."""
        found: _Option | None = None
        for candidate in self.candidates(at, taken):
            option = self.weighed(at, candidate, taken)
            if option is not None and option.payoff > 0 and (found is None or option.payoff > found.payoff):
                found = option
        return found

    def candidates(self, at: int, taken: tuple[int, ...]) -> list[GangPlace]:
        """Where it is; of each type the fewest nodes; and with each type as the slowest, the cheapest GPUs."""
        job, gpus = int(self.asked.jobs[at]), int(self.asked.gpus[at])
        free = [up - used for up, used in zip(self.asked.up, taken, strict=True)]
        found: list[GangPlace] = []
        own = self.asked.running[at]
        if own and all(free[node] >= part for node, part in own):
            found.append(own)
        rates = self.table.packed[job]
        for kind in np.flatnonzero(rates > 0):
            same = self.nodes[kind]
            fits = [node for node in same if free[node] >= gpus]
            if fits:
                found.append(((min(fits, key=lambda node: (self.prices[node][taken[node]], free[node])), gpus),))
            elif (several := _over(sorted(same, key=lambda node: -free[node]), free, gpus)) is not None:
                found.append(several)
            if gpus > 1 and self.spreading:
                mixed = [node for faster in np.flatnonzero(rates >= rates[kind]) for node in self.nodes[faster]]
                cheap = sorted(mixed, key=lambda node: (self.prices[node][taken[node]], -free[node]))
                if (several := _over(cheap, free, gpus)) is not None and len(several) > 1:
                    found.append(several)
        return found

    def weighed(self, at: int, candidate: GangPlace, taken: tuple[int, ...]) -> _Option | None:
        """Its payoff; ``None`` where its rate is unknown."""
        job = int(self.asked.jobs[at])
        kinds = {self.asked.kind_of[node] for node, _ in candidate}
        nodes = len(candidate)
        known = [
            self.table.spread(job, kind, max(nodes, 2) if len(kinds) > 1 else nodes) if self.spreading
            else float(self.table.packed[job, kind])
            for kind in kinds
        ]  # fmt: skip
        slowest = min((rate or 0.0 for rate in known), default=0.0)
        if slowest <= 0:
            return None
        moves = bool(self.asked.started[at]) and candidate != self.asked.running[at]
        takes = float(self.asked.left[at]) / slowest + (float(self.asked.pause[at]) if moves else 0.0)
        worth = utility(float(self.asked.work[at]), takes, float(self.asked.elapsed[at]))
        price = sum(self.prices[node][taken[node]] * gpus for node, gpus in candidate)
        return _Option(worth - price * takes, candidate, slowest)


def _over(nodes: Sequence[int], free: Sequence[int], gpus: int) -> GangPlace | None:
    """The gang over these nodes in turn."""
    found, missing = [], gpus
    for node in nodes:
        if free[node] > 0:
            part = min(free[node], missing)
            found.append((node, part))
            missing -= part
            if not missing:
                return tuple(found)
    return None
