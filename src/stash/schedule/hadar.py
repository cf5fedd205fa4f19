"""Hadar (IPDPS 2024): GPUs have prices that rise as their node fills, and a job runs where its payoff is highest.

One GPU of type t on node h, of whose c GPUs γ are taken, costs k = U_min·(U_max/U_min)^(γ/c) per second, between the
least and the most utility per GPU-second that a waiting job can have on that type. A job's payoff is its utility less
Σ k·GPUs·seconds; it runs if that is above 0. No code of the authors is public: what they leave open is decided in
docs/decisions/fleets.md (31). Pure; knows neither clocks nor rounds before and after.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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


class _State(NamedTuple):
    """A partial choice over the queue."""

    payoff: float
    taken: array[int]
    """GPUs of each node."""
    nodes: list[int]
    """Of each level, as bits."""
    chosen: tuple[int, _Option, Any] | None
    """The last job that runs, its place, and the same of those before it."""


def place(asked: HadarRound, table: RateTable, spreading: bool = True) -> HadarChoice:
    """The choice of highest payoff over the queue, as far as the beam reaches."""
    low, high, density = _bounds(asked, table)
    alpha = max([1.0, *(math.log(top / bottom) for top, bottom in zip(high, low, strict=True) if bottom > 0 < top)])
    levels = _Levels(asked, low, high)
    chooser = _Chooser(asked, table, levels, spreading)
    beam = BEAM if len(asked.jobs) <= _BEAM_JOBS else 1
    states = [levels.start()]
    chooser.dearer(states)
    order = np.argsort(-density, kind="stable")
    queue, at = order[density[order] > 0], 0
    while at < len(queue):
        job, following, refused = int(queue[at]), dict[bytes, _State](), True
        at += 1
        for state in states:
            option = chooser.best(job, state)
            refused &= option is None
            for each in (state,) if option is None else (state, levels.after(state, job, option)):
                known = following.get(key := each.taken.tobytes())
                if known is None or each.payoff > known.payoff:
                    following[key] = each
        states = sorted(following.values(), key=lambda state: -state.payoff)[:beam]
        if not refused and chooser.dearer(states):
            queue, at = chooser.able(queue[at:]), 0
    places, rates, link = {}, {}, states[0].chosen
    while link is not None:
        at, option, link = link
        places[int(asked.jobs[at])], rates[int(asked.jobs[at])] = option.place, option.rate
    return HadarChoice(dict(reversed(places.items())), rates, alpha)


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
        self.asked = asked
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
        self._count = len(number)
        self._of_kind = [[(price, level) for price, _, its, level in self.known if its == kind]
                         for kind in range(len(low))]  # fmt: skip
        self._roomy: dict[tuple[int, int], list[int]] = {}
        self._cheap: dict[tuple[int, ...], list[tuple[int, list[int]]]] = {}
        self._emptiest: dict[int, list[tuple[int, list[int]]]] = {}

    def start(self) -> _State:
        """Nothing is taken but what is down."""
        taken = array("H", [up if node in self.asked.down else 0 for node, up in enumerate(self.asked.up)])
        nodes = [0] * self._count
        for node, levels in enumerate(self.of_node):
            nodes[levels[taken[node]]] |= 1 << node
        return _State(0.0, taken, nodes, None)

    def after(self, state: _State, job: int, option: _Option) -> _State:
        taken, nodes = state.taken[:], state.nodes[:]
        for node, gpus in option.place:
            levels, bit = self.of_node[node], 1 << node
            nodes[levels[taken[node]]] ^= bit
            taken[node] += gpus
            nodes[levels[taken[node]]] |= bit
        return _State(state.payoff + option.payoff, taken, nodes, (job, option, state.chosen))

    def floors(self, nodes: Sequence[int]) -> tuple[list[float], list[int]]:
        """The least price of a free GPU of each type, infinite where there is none, and the levels of these."""
        some = [next((each for each in levels if nodes[each[1]]), None) for levels in self._of_kind]
        return [each[0] if each else math.inf for each in some], [each[1] for each in some if each]

    def node(self, kind: int, gpus: int, nodes: Sequence[int]) -> int | None:
        """The cheapest node with room for a gang, of those the fullest, of those the first."""
        if (kind, gpus) not in self._roomy:
            self._roomy[kind, gpus] = [level for _, free, its, level in self.known if its == kind and free >= gpus]
        for level in self._roomy[kind, gpus]:
            if nodes[level]:
                return (nodes[level] & -nodes[level]).bit_length() - 1
        return None

    def emptiest(self, kind: int, gpus: int, nodes: Sequence[int]) -> GangPlace | None:
        """A gang over the nodes of a type with most free GPUs."""
        if kind not in self._emptiest:
            sizes = sorted({free for _, free, its, _ in self.known if its == kind}, reverse=True)
            self._emptiest[kind] = [
                (size, [level for _, free, its, level in self.known if (its, free) == (kind, size)]) for size in sizes
            ]
        return _over(self._emptiest[kind], nodes, gpus)

    def cheapest(self, kinds: tuple[int, ...], gpus: int, nodes: Sequence[int]) -> GangPlace | None:
        """A gang over the nodes of these types with the cheapest GPUs."""
        if kinds not in self._cheap:
            some = sorted((price, -free, kind, level) for price, free, kind, level in self.known if kind in kinds)
            self._cheap[kinds] = [(-less, [level]) for _, less, _, level in some]
        return _over(self._cheap[kinds], nodes, gpus)


class _Chooser:
    """The best placement of one job, given what is taken."""

    def __init__(self, asked: HadarRound, table: RateTable, levels: _Levels, spreading: bool) -> None:
        self.asked, self.table, self.levels, self.spreading = asked, table, levels, spreading
        several = (asked.gpus > 1)[:, None] & spreading
        packed, over = table.packed[asked.jobs], table.over[asked.jobs]
        self._fastest = np.where(several, np.maximum(packed, over), packed), np.where(several, over, 0.0).max(axis=1)
        self._floors: list[float] = []
        self._least: list[int] = []
        columns = (asked.jobs, asked.gpus, asked.left, asked.work, asked.elapsed, asked.pause)
        self._facts = list(zip(*(column.tolist() for column in columns), packed.tolist(), strict=True))
        self._runs = np.array([bool(each) for each in asked.running])

    def dearer(self, states: Sequence[_State]) -> bool:
        """Whether the least price of a type has risen: then what a job can win at most is computed again."""
        if self._floors and len(states) == 1 and all(states[0].nodes[level] for level in self._least):
            return False
        floors, self._least = self.levels.floors(states[0].nodes)
        for state in states[1:]:
            floors = list(map(min, floors, self.levels.floors(state.nodes)[0]))
        if floors == self._floors:
            return False
        self._floors, (alone, mixed) = floors, self._fastest
        self.alone = self._most(alone, np.array(floors))
        """Of each job and type, on nodes of that type, unless it stays where it is."""
        self.mixed = self._most(mixed[:, None], np.array([min(floors)]))[:, 0]
        """Of each job on nodes of several types."""
        return True

    def _most(self, rates: Floats, floors: Floats) -> Floats:
        asked = self.asked
        runs = (rates > 0) & (floors < math.inf)
        takes = asked.left[:, None] / np.where(runs, rates, 1.0) + asked.pause[:, None]
        price = np.where(floors < math.inf, floors, 0.0) * asked.gpus[:, None]
        worth = utility(asked.work[:, None], takes, asked.elapsed[:, None])
        return np.where(runs, worth * (1 + 1e-9) - price * takes, -math.inf)

    def able(self, queue: WholeNumbers) -> WholeNumbers:
        """Those that can still win something."""
        return queue[self._runs[queue] | (self.alone[queue] > 0).any(axis=1) | (self.mixed[queue] > 0)]

    def best(self, at: int, state: _State) -> _Option | None:
        """The option of highest payoff, if that is above 0; of equals the first in the order of places below.

        Where it is; of each type the fewest nodes; and with each type as the slowest, the cheapest GPUs. Types that
        cannot win more than what was found are not looked at.
        """
        _, gpus, *_, rates = self._facts[at]
        nodes, taken, up = state.nodes, state.taken, self.asked.up
        found, highest = None, (0.0, 1)
        own = self.asked.running[at]
        if own and all(up[node] - taken[node] >= part for node, part in own):
            option = self.weighed(at, own, taken)
            if option is not None and option.payoff > 0:
                found, highest = option, (option.payoff, 1)
        most = self.alone[at].tolist()
        for kind in sorted(range(len(most)), key=most.__getitem__, reverse=True):
            if most[kind] < highest[0]:
                break
            one = self.levels.node(kind, gpus, nodes)
            candidate = ((one, gpus),) if one is not None else self.levels.emptiest(kind, gpus, nodes)
            option = self.weighed(at, candidate, taken) if candidate else None
            if option is not None and (option.payoff, -2 * kind) > highest:
                found, highest = option, (option.payoff, -2 * kind)
        if gpus > 1 and self.spreading and self.mixed[at] >= highest[0]:
            for kind in (kind for kind, rate in enumerate(rates) if rate > 0):
                faster = tuple(other for other, rate in enumerate(rates) if rate >= rates[kind])
                candidate = self.levels.cheapest(faster, gpus, nodes)
                option = self.weighed(at, candidate, taken) if candidate and len(candidate) > 1 else None
                if option is not None and (option.payoff, -2 * kind - 1) > highest:
                    found, highest = option, (option.payoff, -2 * kind - 1)
        return found

    def weighed(self, at: int, candidate: GangPlace, taken: Sequence[int]) -> _Option | None:
        """Its payoff; ``None`` where its rate is unknown."""
        job, _, left, work, elapsed, pause, rates = self._facts[at]
        if len(candidate) == 1:
            node, gpus = candidate[0]
            slowest = rates[self.asked.kind_of[node]]
            price = self.levels.prices[node][taken[node]] * gpus
        else:
            kinds = {self.asked.kind_of[node] for node, _ in candidate}
            count = len(candidate)
            slowest = min((self.table.spread(job, kind, count) or 0.0) if self.spreading else rates[kind]
                          for kind in kinds)  # fmt: skip
            price = sum(self.levels.prices[node][taken[node]] * gpus for node, gpus in candidate)
        if slowest <= 0:
            return None
        takes = left / slowest + (pause if candidate != self.asked.running[at] else 0.0)
        return _Option(work / (elapsed + takes) - price * takes, candidate, slowest)


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
