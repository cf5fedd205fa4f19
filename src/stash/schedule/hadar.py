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
from functools import reduce
from typing import Any, NamedTuple

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


def place(asked: HadarRound, table: RateTable, spreading: bool = True) -> HadarChoice:
    """One job of the queue after the other on its place of highest payoff, by what it can win per GPU-second."""
    low, high, density = _bounds(asked, table)
    alpha = max([1.0, *(math.log(top / bottom) for top, bottom in zip(high, low, strict=True) if bottom > 0 < top)])
    levels = _Levels(asked, low, high)
    chooser = _Chooser(asked, table, levels, spreading)
    order = np.argsort(-density, kind="stable")
    places, rates = dict[int, GangPlace](), dict[int, float]()
    chooser.dearer()
    queue, at = chooser.able(order[density[order] > 0]), 0
    while at < len(queue):
        job, option = int(asked.jobs[queue[at]]), chooser.best(at)
        at += 1
        if option is not None:
            places[job], rates[job] = option.place, option.rate
            if levels.take(option.place) and chooser.dearer():
                queue, at = chooser.able(np.array(queue[at:], dtype=np.int64)), 0
    return HadarChoice(places, rates, alpha)


def _bounds(asked: HadarRound, table: RateTable) -> tuple[list[float], list[float], Floats]:
    """U_min and U_max per GPU-second by type, and each job's highest."""
    packed = table.packed[asked.jobs]
    with np.errstate(divide="ignore"):
        takes = np.where(packed > 0, asked.left[:, None] / packed, np.inf)
    takes = takes + asked.pause[:, None]
    value = asked.work[:, None] / (asked.elapsed[:, None] + takes)
    per_second = np.where(np.isfinite(takes), value / (asked.gpus[:, None] * takes), 0.0)
    high = per_second.max(axis=0)
    low = np.where(per_second > 0, per_second, high).min(axis=0)
    return low.tolist(), high.tolist(), np.asarray(per_second.max(axis=1), dtype=float)


class _Levels:
    """Nodes that are alike, of one type, one price and as many free GPUs: a level, a set of bits by node number."""

    def __init__(self, asked: HadarRound, low: Sequence[float], high: Sequence[float]) -> None:
        number: dict[tuple[int, float, int], int] = {}
        of_size: dict[tuple[int, int], tuple[list[float], list[int]]] = {}
        sizes = list(zip(asked.kind_of, asked.up, strict=True))
        for kind, up in sizes:
            if (kind, up) not in of_size:
                least, ratio = low[kind] / math.e, math.e * high[kind] / low[kind] if low[kind] > 0 else 1.0
                prices = [least * ratio ** (taken / up) for taken in range(up + 1)]
                keys = [(kind, price, up - taken) for taken, price in enumerate(prices)]
                of_size[kind, up] = prices, [number.setdefault(key, len(number)) for key in keys]
        self.prices, self.of_node = [of_size[size][0] for size in sizes], [of_size[size][1] for size in sizes]
        """By GPUs that are taken."""
        self.known = sorted((price, free, kind, level) for (kind, price, free), level in number.items() if free)
        self._of_kind = [[(price, level) for price, _, its, level in self.known if its == kind]
                         for kind in range(len(low))]  # fmt: skip
        self._roomy: dict[tuple[int, int], list[tuple[int, float]]] = {}
        self._cheap: dict[tuple[int, ...], list[tuple[int, list[int]]]] = {}
        self._emptiest: dict[int, list[tuple[int, list[int]]]] = {}
        self.taken = [up if node in asked.down else 0 for node, up in enumerate(asked.up)]
        """GPUs of each node."""
        self.nodes = [0] * len(number)
        """Of each level, as bits."""
        for node, levels in enumerate(self.of_node):
            self.nodes[levels[self.taken[node]]] |= 1 << node

    def take(self, place: GangPlace) -> bool:
        """Whether a level has become empty."""
        taken, nodes, emptied = self.taken, self.nodes, False
        for node, gpus in place:
            levels, bit = self.of_node[node], 1 << node
            nodes[levels[taken[node]]] ^= bit
            emptied |= not nodes[levels[taken[node]]]
            taken[node] += gpus
            nodes[levels[taken[node]]] |= bit
        return emptied

    def floors(self) -> tuple[list[float], list[int]]:
        """The least price of a free GPU of each type, infinite where there is none, and the levels of these."""
        some = [next((each for each in levels if self.nodes[each[1]]), None) for levels in self._of_kind]
        return [each[0] if each else math.inf for each in some], [each[1] for each in some if each]

    def roomy(self, kind: int, gpus: int) -> list[tuple[int, float]]:
        """Levels with room for a gang, the cheapest first, of those the fullest, and what the gang costs there."""
        if (kind, gpus) not in self._roomy:
            self._roomy[kind, gpus] = [
                (level, price * gpus) for price, free, its, level in self.known if its == kind and free >= gpus
            ]
        return self._roomy[kind, gpus]

    def emptiest(self, kind: int, gpus: int) -> GangPlace | None:
        """A gang over the nodes of a type with most free GPUs."""
        if kind not in self._emptiest:
            sizes = sorted({free for _, free, its, _ in self.known if its == kind}, reverse=True)
            self._emptiest[kind] = [
                (size, [level for _, free, its, level in self.known if (its, free) == (kind, size)]) for size in sizes
            ]
        return _over(self._emptiest[kind], self.nodes, gpus)

    def cheapest(self, kinds: tuple[int, ...], gpus: int) -> GangPlace | None:
        """A gang over the nodes of these types with the cheapest GPUs."""
        if kinds not in self._cheap:
            some = sorted((price, -free, kind, level) for price, free, kind, level in self.known if kind in kinds)
            self._cheap[kinds] = [(-less, [level]) for _, less, _, level in some]
        return _over(self._cheap[kinds], self.nodes, gpus)


class _Chooser:
    """The best placement of one job, given what is taken."""

    def __init__(self, asked: HadarRound, table: RateTable, levels: _Levels, spreading: bool) -> None:
        self.asked, self.table, self.levels, self.spreading = asked, table, levels, spreading
        several = (asked.gpus > 1)[:, None] & spreading
        packed, over = table.packed[asked.jobs], table.over[asked.jobs]
        self._fastest = [
            self._most(rates) for rates in (np.where(several, np.maximum(packed, over), packed), several * over)
        ]
        self._as_fast = table.of_kind[:, None, :] >= table.of_kind[:, :, None]
        self._floors: list[float] = []
        self._least: list[int] = []
        self.queue: list[int] = []
        self._runs = np.array([bool(each) for each in asked.running])
        with np.errstate(divide="ignore"):
            stays = asked.left[:, None] / packed
        moves = stays + asked.pause[:, None]
        # One list each: lists of lists would be thousands of objects a round.
        kept, worth = (utility(asked.work[:, None], takes, asked.elapsed[:, None]) for takes in (stays, moves))
        self._types, self._gpus = packed.shape[1], asked.gpus.tolist()
        self._rates, self._stays, self._kept, self._moves, self._worth = (
            each.ravel().tolist() for each in (packed, stays, kept, moves, worth)
        )
        """By job and type, on one node: rate; seconds until its end and utility, if it stays, and if it moves."""

    def _most(self, rates: Floats) -> tuple[Floats, Floats]:
        """By job and type, at these rates: utility, −∞ where it does not run, and GPU-seconds."""
        asked, runs = self.asked, rates > 0
        takes = asked.left[:, None] / np.where(runs, rates, 1.0) + asked.pause[:, None]
        worth = utility(asked.work[:, None], takes, asked.elapsed[:, None]) * (1 + 1e-9)
        return np.where(runs, worth, -math.inf), asked.gpus[:, None] * takes

    def dearer(self) -> bool:
        """Whether the least price of a type has risen: then what a job can win at most is computed again."""
        if self._floors and all(self.levels.nodes[level] for level in self._least):
            return False
        before = self._floors
        self._floors, self._least = self.levels.floors()
        return self._floors != before

    def able(self, jobs: WholeNumbers) -> list[int]:
        """Those that can still win something, and what each can at the least prices, on other nodes than its own."""
        floors = np.array(self._floors)
        cheapest = np.where(self._as_fast, floors, np.inf).min(axis=2)
        (worth, area), (worth_mixed, area_mixed) = self._fastest
        alone = worth[jobs] - floors * area[jobs]
        mixed = worth_mixed[jobs] - cheapest[self.table.kind[self.asked.jobs[jobs]]] * area_mixed[jobs]
        elsewhere = reduce(np.maximum, [*alone.T, *mixed.T])
        kept = self._runs[jobs] | (elsewhere > 0)
        alone = alone[kept]
        self.queue = jobs[kept].tolist()
        self._kinds, self._alone, self._mixed, self._elsewhere = (
            each.ravel().tolist()
            for each in (np.argsort(-alone, axis=1, kind="stable"), alone, mixed[kept], elsewhere[kept])
        )
        """By place in the queue: types, the best first; by type, on it alone and with it as the slowest; the most."""
        return self.queue

    def best(self, at: int) -> _Option | None:
        """The option of highest payoff for a place in the queue, if above 0; of equals the first of the places below.

        Where it is; of each type the fewest nodes; and with each type as the slowest, the cheapest GPUs. Types that
        cannot win more than what was found are not looked at.
        """
        job, nodes = self.queue[at], self.levels.nodes
        found, highest, rank = self._staying(job), 0.0, 1
        if found is not None:
            highest = found.payoff
            if self._elsewhere[at] < highest:
                return found
        gpus, own = self._gpus[job], job * self._types
        first, last = at * self._types, (at + 1) * self._types
        for kind in self._kinds[first:last]:
            if self._alone[first + kind] < highest:
                break
            for level, price in self.levels.roomy(kind, gpus):
                if bits := nodes[level]:
                    payoff = self._worth[own + kind] - price * self._moves[own + kind]
                    if payoff > highest or (payoff == highest and -2 * kind > rank):
                        node = (bits & -bits).bit_length() - 1
                        found = _Option(payoff, ((node, gpus),), self._rates[own + kind])
                        highest, rank = payoff, -2 * kind
                    break
            else:
                candidate = self.levels.emptiest(kind, gpus)
                option = self._weighed(job, candidate) if candidate else None
                if option is not None and (option.payoff, -2 * kind) > (highest, rank):
                    found, highest, rank = option, option.payoff, -2 * kind
        if gpus > 1 and self.spreading:
            rates = self._rates[own : own + self._types]
            for kind, bound in enumerate(self._mixed[first:last]):
                if bound < highest or bound == -math.inf:
                    continue
                faster = tuple(other for other, rate in enumerate(rates) if rate >= rates[kind])
                candidate = self.levels.cheapest(faster, gpus)
                option = self._weighed(job, candidate) if candidate and len(candidate) > 1 else None
                if option is not None and (option.payoff, -2 * kind - 1) > (highest, rank):
                    found, highest, rank = option, option.payoff, -2 * kind - 1
        return found

    def _staying(self, job: int) -> _Option | None:
        """Where it runs, if its GPUs are still free and worth their price."""
        place, up, taken = self.asked.running[job], self.asked.up, self.levels.taken
        if len(place) == 1:
            node, part = place[0]
            before = taken[node]
            if before + part > up[node]:
                return None
            at = job * self._types + self.asked.kind_of[node]
            payoff = self._kept[at] - self.levels.prices[node][before] * part * self._stays[at]
            return _Option(payoff, place, self._rates[at]) if payoff > 0 else None
        if not place or any(taken[node] + part > up[node] for node, part in place):
            return None
        option = self._weighed(job, place)
        return option if option is not None and option.payoff > 0 else None

    def _weighed(self, job: int, place: GangPlace) -> _Option | None:
        """Its payoff on several nodes; ``None`` where its rate is unknown."""
        asked, own = self.asked, job * self._types
        kinds, number = {asked.kind_of[node] for node, _ in place}, int(asked.jobs[job])
        if self.spreading:
            slowest = min(self.table.spread(number, kind, len(place)) or 0.0 for kind in kinds)
        else:
            slowest = min(self._rates[own + kind] for kind in kinds)
        if slowest <= 0:
            return None
        price = sum(self.levels.prices[node][self.levels.taken[node]] * gpus for node, gpus in place)
        takes = asked.left[job] / slowest + (asked.pause[job] if place != asked.running[job] else 0.0)
        payoff = utility(asked.work[job], takes, asked.elapsed[job]) - price * takes
        return _Option(float(payoff), place, slowest)


def utility(work: Any, finish_after: Any, elapsed: Any) -> Any:
    """Work/(f − submit): 1 for a job that was never kept from its fastest type, less the later it ends."""
    return work / (elapsed + finish_after)


def _over(levels: Sequence[tuple[int, list[int]]], nodes: Sequence[int], gpus: int) -> GangPlace | None:
    """The gang over nodes of these levels in turn, each with so many free GPUs."""
    found, missing = [], gpus
    for free, some in levels:
        bits = 0
        for level in some:
            bits |= nodes[level]
        while bits:
            first = bits & -bits
            bits ^= first
            part = min(free, missing)
            found.append((first.bit_length() - 1, part))
            missing -= part
            if not missing:
                return tuple(found)
    return None
