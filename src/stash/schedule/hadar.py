"""Hadar (IPDPS 2024): GPUs have prices that rise as their node fills, and a job runs where its payoff is highest.

One GPU of type t on node h, of whose c GPUs γ are taken, costs k = U_min·(U_max/U_min)^(γ/c) per second, between the
least and the most utility per GPU-second that a waiting job can have on that type. A job's payoff is its utility less
Σ k·GPUs·seconds; it runs if that is above 0. No code of the authors is public: what they leave open is decided in
docs/decisions/fleets.md (31). Pure; knows neither clocks nor rounds before and after.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stash.schedule.matrix import RateTable
from stash.schedule.placement import GangPlace
from stash.schedule.records import Floats, WholeNumbers


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
    """Seconds that starting it somewhere else takes; 0 for one that never ran."""
    nodes: Sequence[int]
    """GPUs of each node."""
    kind_of: Sequence[int]


@dataclass(frozen=True)
class HadarChoice:
    """Who runs where, and how fast."""

    places: dict[int, GangPlace]
    rates: dict[int, float]


def place(asked: HadarRound, table: RateTable) -> HadarChoice:
    """One job of the queue after the other on its place of highest payoff, by what it can win per GPU-second."""
    low, high, density = _utility_bounds(asked, table)
    nodes = _Nodes(asked, low, high)
    places: dict[int, GangPlace] = {}
    rates: dict[int, float] = {}
    for job in np.argsort(-density, kind="stable").tolist():
        highest = 0.0
        for candidate in _candidates(asked, table, nodes, job):
            rate = _rate(asked, table, job, candidate)
            if rate <= 0:
                continue
            pause = 0.0 if candidate == asked.running[job] else float(asked.pause[job])
            seconds = float(asked.left[job]) / rate + pause
            utility = float(asked.work[job]) / (float(asked.elapsed[job]) + seconds)
            payoff = utility - sum(nodes.price(node) * gpus for node, gpus in candidate) * seconds
            if payoff > highest:  # of equals the first
                highest = payoff
                places[int(asked.jobs[job])] = candidate
                rates[int(asked.jobs[job])] = rate
        for node, gpus in places.get(int(asked.jobs[job]), ()):
            nodes.taken[node] += gpus
    return HadarChoice(places, rates)


def _utility_bounds(asked: HadarRound, table: RateTable) -> tuple[list[float], list[float], Floats]:
    """U_min and U_max per GPU-second by type, and each job's highest."""
    packed = table.packed[asked.jobs]
    with np.errstate(divide="ignore"):
        seconds = np.where(packed > 0, asked.left[:, None] / packed, np.inf) + asked.pause[:, None]
    utility = asked.work[:, None] / (asked.elapsed[:, None] + seconds)
    per_second = np.where(np.isfinite(seconds), utility / (asked.gpus[:, None] * seconds), 0.0)
    high = per_second.max(axis=0)
    low = np.where(per_second > 0, per_second, high).min(axis=0)
    return low.tolist(), high.tolist(), np.asarray(per_second.max(axis=1), dtype=float)


class _Nodes:
    """Which GPUs are taken, and what the next one costs. U_min is divided by e: see decision 31."""

    def __init__(self, asked: HadarRound, low: Sequence[float], high: Sequence[float]) -> None:
        self.gpus = asked.nodes
        self.kind_of = asked.kind_of
        self.taken = [0] * len(asked.nodes)
        self._least = [bottom / math.e for bottom in low]
        self._ratio = [math.e * top / bottom if bottom > 0 else 1.0 for bottom, top in zip(low, high, strict=True)]

    def price(self, node: int) -> float:
        """Of one GPU for a second."""
        kind = self.kind_of[node]
        return self._least[kind] * float(self._ratio[kind] ** (self.taken[node] / self.gpus[node]))

    def free(self, node: int) -> int:
        return self.gpus[node] - self.taken[node]

    def of_kinds(self, kinds: set[int]) -> list[int]:
        """Nodes of these types that have free GPUs."""
        return [node for node, kind in enumerate(self.kind_of) if kind in kinds and self.free(node)]

    def gang(self, nodes: Sequence[int], gpus: int) -> Iterator[GangPlace]:
        """The gang over these nodes in turn; none where they have too few GPUs."""
        place = []
        for node in nodes:
            place.append((node, min(self.free(node), gpus)))
            gpus -= place[-1][1]
            if not gpus:
                yield tuple(place)
                return


def _candidates(asked: HadarRound, table: RateTable, nodes: _Nodes, job: int) -> Iterator[GangPlace]:
    """Where it is; of each type the fewest nodes; and with each type as the slowest, the cheapest GPUs."""
    gpus, number = int(asked.gpus[job]), int(asked.jobs[job])
    running = asked.running[job]
    if running and all(part <= nodes.free(node) for node, part in running):
        yield running
    rates = table.packed[number]
    for kind, rate in enumerate(rates):
        of_kind = nodes.of_kinds({kind})
        roomy = [node for node in of_kind if nodes.free(node) >= gpus]
        if roomy:
            yield ((min(roomy, key=lambda node: (nodes.price(node), nodes.free(node))), gpus),)
        else:
            yield from nodes.gang(sorted(of_kind, key=lambda node: -nodes.free(node)), gpus)
        if gpus > 1 and table.over[number, kind] > 0:
            faster = nodes.of_kinds(set(np.flatnonzero(rates >= rate).tolist()))
            faster.sort(key=lambda node: (nodes.price(node), -nodes.free(node), nodes.kind_of[node]))
            yield from (mixed for mixed in nodes.gang(faster, gpus) if len(mixed) > 1)


def _rate(asked: HadarRound, table: RateTable, job: int, place: GangPlace) -> float:
    """Of the slowest worker; 0 where it is unknown."""
    number = int(asked.jobs[job])
    kinds = {asked.kind_of[node] for node, _ in place}
    if len(place) > 1:
        return min(table.spread(number, kind, len(place)) or 0.0 for kind in kinds)
    return min(float(table.packed[number, kind]) for kind in kinds)
