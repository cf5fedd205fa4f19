"""The cheapest fleet of a pool too large to enumerate, exactly: branch and bound, one mixed-integer program a node.

For a fixed number of workers N the paper's model has fixed rates r of every type. A node bounds the mean batch and
the fleet's updates per second X (with R which types the fastest is among, so that (5) is bounded). There the updates
j are at least j_lo, and a fleet cheaper than the best known, C*, has (j_lo + start · X_lo) · P − C* · X < 0 with its
price P: linear in the counts, as is all else. HiGHS finds the least of that; if it is not negative, the node is
proven empty.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, milp

from stash.derive.predict.uncertainty.draws import Array
from stash.derive.spot.fleet.weighing import HOUR, FleetWish, weigh
from stash.derive.spot.speed.sharing import iteration_seconds

MOST_NODES = 5_000
"""Programs until a search gives up proving."""
TOLERANCE = 1e-6
"""Relative: a fleet that much cheaper is not looked for."""
_PRICES_OF_SPEED = 8
"""Fleets tried for each number of workers before anything is proven: by price less so much for speed."""
_EDGE = 0.05
"""A candidate nearer to a node's edge than this share of it does not say where to cut it."""
_WHOLE = 1e-5


@dataclass(frozen=True)
class CheapestFleet:
    """The best fleet, ``None`` if there is none, and how sure that is."""

    counts: Array | None
    dollars: float
    gap: float
    """0 within ``TOLERANCE``; more if it ran out of nodes."""
    evaluations: int
    """Fleets weighed."""
    nodes: int
    """Programs solved."""


@dataclass(frozen=True)
class _Node:
    size: int
    batch: tuple[float, float]
    rate: tuple[float, float]
    fastest: tuple[int, int] | None = None
    """With R: between which two types, slowest first, the fastest worker lies."""


@dataclass
class _Search:
    """One search under way: the best fleet, and what was counted."""

    wish: FleetWish
    best: float = math.inf
    counts: Array | None = None
    evaluations: int = 0
    nodes: int = 0
    seconds: dict[int, Array] = field(default_factory=dict)

    def try_fleets(self, counts: Array) -> None:
        """Weigh ``counts`` [fleet, type] and keep the cheapest feasible one."""
        self.evaluations += len(counts)
        found = weigh(self.wish, counts)
        dollars = np.where(found.feasible, found.dollars, math.inf)
        at = int(np.argmin(dollars))
        if dollars[at] < self.best:
            self.best, self.counts = float(dollars[at]), counts[at]

    @property
    def limit(self) -> float:
        """Dollar-hours · seconds: what a better fleet costs less than, for prices per hour and times in seconds."""
        budget = self.wish.budget_dollars
        ceiling = min(self.best * (1 - TOLERANCE), math.inf if budget is None else budget * (1 + 1e-9))
        return ceiling * HOUR


def cheapest(wish: FleetWish, most_nodes: int = MOST_NODES) -> CheapestFleet:
    """The cheapest fleet in time, by the paper's model; proven unless ``most_nodes`` programs do not suffice."""
    search = _Search(wish)
    sizes = np.arange(1, sum(wish.quotas) + 1)
    times = iteration_seconds(wish.pool, sizes.astype(float))
    for size in sizes:
        search.seconds[int(size)] = times[size - 1]
    search.try_fleets(np.concatenate([_likely(wish, int(size), times[size - 1]) for size in _some(sizes)]))
    waiting: list[tuple[float, int, _Node]] = []
    order = count()
    for size in sizes:
        root = _root(search, int(size))
        bound = _bound(search, root)
        if bound < search.limit:
            heapq.heappush(waiting, (bound, next(order), root))
    while waiting and search.nodes < most_nodes:
        bound, _, node = heapq.heappop(waiting)
        if bound >= search.limit:
            break
        for child in _explored(search, node):
            lower = max(bound, _bound(search, child))
            if lower < search.limit:
                heapq.heappush(waiting, (lower, next(order), child))
    left = waiting[0][0] if waiting else math.inf
    gap = max(0.0, 1 - left / HOUR / search.best) if search.counts is not None and left < search.limit else 0.0
    if search.counts is None and left < math.inf:
        gap = math.inf
    return CheapestFleet(search.counts, search.best, gap, search.evaluations, search.nodes)


def _some(sizes: npt.NDArray[np.int_]) -> npt.NDArray[np.int_]:
    """All small sizes, and ever fewer of the large ones: where to look for a first good fleet."""
    spaced = np.unique(np.round(np.geomspace(1, sizes[-1], 24)).astype(int))
    return np.union1d(sizes[:8], spaced)


def _likely(wish: FleetWish, size: int, seconds: Array) -> Array:
    """Fleets of ``size`` that are best for some price of speed, within quotas."""
    rates, quotas = 1 / seconds, np.array(wish.quotas)
    scale = float(np.median(wish.prices / rates)) if wish.prices.any() else 1.0
    worths = scale * np.geomspace(1e-2, 1e2, _PRICES_OF_SPEED)
    found = []
    for worth in worths:
        order = np.argsort(wish.prices - worth * rates, kind="stable")
        taken = np.clip(size - (np.cumsum(quotas[order]) - quotas[order]), 0, quotas[order])
        counts = np.zeros(len(quotas))
        counts[order] = taken
        found.append(counts)
    return np.unique(np.array(found), axis=0)


def _root(search: _Search, size: int) -> _Node:
    """All fleets of ``size``."""
    wish, quotas = search.wish, np.array(search.wish.quotas)
    usable = quotas > 0
    rates = np.sort(np.repeat(1 / search.seconds[size][usable], np.minimum(quotas[usable], size)))
    span = (float(rates[:size].sum()), float(rates[-size:].sum()))
    batches = (float(wish.samples[usable].min()), float(wish.samples[usable].max()))
    return _Node(size, batches, span, None if wish.pool.loss.gamma4 is None else (0, len(quotas) - 1))


def _updates(search: _Search, node: _Node) -> float:
    """j_lo: no fleet of the node reaches the loss in fewer updates; infinite where equation (3) says nothing."""
    curve, wish = search.wish.pool.loss, search.wish
    ends = [curve.gamma2 * batch + curve.gamma3 for batch in node.batch]
    if max(ends) <= 0:
        return math.inf
    spread = 1.0 if curve.gamma4 is None else _imbalance(search, node) + curve.gamma4
    steep = max(min(ends), 0.0) * math.sqrt(spread * node.size)
    return max(steep / (wish.loss - curve.gamma5) - curve.gamma1, 1.0)


def _imbalance(search: _Search, node: _Node) -> float:
    """The least R: (1 − w₁) · √(N / (N − 1)), others being equally fast, with the largest w₁ of the node."""
    if node.fastest is None or node.size == 1:
        return 0.0
    speed = np.sort(_speeds(search, node.size))[node.fastest[1]]
    share = min(1.0, float(speed) / max(node.batch[0] * node.rate[0], 1e-300))
    return (1 - share) * math.sqrt(node.size / (node.size - 1))


def _speeds(search: _Search, size: int) -> Array:
    """vᵢ: samples per second of each type."""
    found: Array = search.wish.samples / search.seconds[size]
    return found


def _weights(search: _Search, node: _Node) -> tuple[float, float]:
    """(j_lo, j_lo + start · X_lo)."""
    updates = _updates(search, node)
    return updates, updates + search.wish.pool.start_seconds * node.rate[0]


def _bound(search: _Search, node: _Node) -> float:
    """Dollar-hours · seconds that no fleet of the node undercuts, without a program: infinite if it is empty.

    Of exactly N machines within quotas, those with the least weight · p − C* · r: if that is not negative, C* stays.
    """
    wish = search.wish
    updates, weight = _weights(search, node)
    least = max(node.rate[0], updates / wish.training_seconds)
    if not math.isfinite(updates) or least > node.rate[1] * (1 + 1e-9) or node.batch[0] > node.batch[1]:
        return math.inf
    prices = np.repeat(wish.prices, np.minimum(wish.quotas, node.size))
    cheap = float(np.sort(prices)[: node.size].sum()) + wish.server_price
    simple = cheap * (updates / node.rate[1] + wish.pool.start_seconds)
    if not math.isfinite(search.limit) or simple >= search.limit:
        return simple
    rates = np.repeat(1 / search.seconds[node.size], np.minimum(wish.quotas, node.size))
    worth = weight * prices - search.limit * rates
    total = float(np.partition(worth, node.size - 1)[: node.size].sum()) + weight * wish.server_price
    return math.inf if total >= 0 else simple


def _explored(search: _Search, node: _Node) -> Iterator[_Node]:
    """What is left of a node after its program: nothing if that proves it empty, else two halves."""
    candidate = _solved(search, node)
    if candidate is None:
        return
    search.try_fleets(candidate[None, :])
    rates = candidate / search.seconds[node.size]
    rate = float(rates.sum())
    batch = float(rates @ search.wish.samples) / rate
    weight = _weights(search, node)[1]
    by_batch = _weights(search, replace(node, batch=_heaviest(search, node)))[1] / weight - 1
    by_rate = _weights(search, replace(node, rate=(node.rate[1], node.rate[1])))[1] / weight - 1
    by_fastest = _slowest_first(search, node) / weight - 1
    if max(by_batch, by_rate, by_fastest) < TOLERANCE:
        return
    if node.fastest is not None and by_fastest >= max(by_batch, by_rate):
        first, last = node.fastest
        yield replace(node, fastest=(first, (first + last) // 2))
        yield replace(node, fastest=((first + last) // 2 + 1, last))
    elif by_batch >= by_rate:
        for part in _cut(node.batch, batch):
            yield replace(node, batch=part)
    else:
        for part in _cut(node.rate, rate):
            yield replace(node, rate=part)


def _slowest_first(search: _Search, node: _Node) -> float:
    """What the node would weigh if its fastest worker were of the slowest type it can be of."""
    if node.fastest is None or node.fastest[0] == node.fastest[1]:
        return _weights(search, node)[1]
    return _weights(search, replace(node, fastest=(node.fastest[0], node.fastest[0])))[1]


def _heaviest(search: _Search, node: _Node) -> tuple[float, float]:
    """The mean batch of the node that takes the most updates."""
    worst = node.batch[0] if search.wish.pool.loss.gamma2 < 0 else node.batch[1]
    return worst, worst


def _cut(span: tuple[float, float], at: float) -> tuple[tuple[float, float], tuple[float, float]]:
    low, high = span
    inside = low + _EDGE * (high - low) <= at <= high - _EDGE * (high - low)
    middle = at if inside else (low + high) / 2
    return (low, middle), (middle, high)


def _solved(search: _Search, node: _Node) -> Array | None:
    """The fleet of the node that would be cheapest if j were j_lo; ``None`` if none can beat the best known."""
    wish, rates = search.wish, 1 / search.seconds[node.size]
    search.nodes += 1
    updates, weight = _weights(search, node)
    limit = search.limit if math.isfinite(search.limit) else 0.0
    price_worth = weight * wish.prices - limit * rates
    fixed = weight * wish.server_price
    rows, low, high = _constraints(search, node, rates, updates)
    quotas = np.minimum(np.array(wish.quotas, dtype=float), node.size)
    if node.fastest is not None:
        order = np.argsort(_speeds(search, node.size), kind="stable")
        quotas[order[node.fastest[1] + 1 :]] = 0.0
        among = np.zeros_like(quotas)
        among[order[node.fastest[0] : node.fastest[1] + 1]] = 1.0
        rows, low, high = [*rows, among], [*low, 1.0], [*high, math.inf]
    scale = float(np.abs(price_worth).max()) or 1.0
    solved = milp(
        price_worth / scale,
        constraints=LinearConstraint(np.array(rows), np.array(low), np.array(high)),
        integrality=np.ones(len(quotas)),
        bounds=Bounds(0, quotas),
        options={"mip_rel_gap": 0.0},
    )
    if solved.x is None:
        return None
    if math.isfinite(search.limit) and solved.mip_dual_bound * scale + fixed >= 0:
        return None
    rounded: Array = np.round(solved.x)
    return rounded if np.abs(rounded - solved.x).max() < _WHOLE else None


def _constraints(
    search: _Search, node: _Node, rates: Array, updates: float
) -> tuple[list[Array], list[float], list[float]]:
    """Rows on the counts, scaled to about 1: how many, mean batch, X within the node and fast enough, vCPUs."""
    wish = search.wish
    unit_rate, unit_batch = float(rates.max()), float(wish.samples.max())
    scaled, samples = rates / unit_rate, wish.samples / unit_batch
    rows = [
        np.ones(len(rates)),
        scaled * (samples - node.batch[0] / unit_batch),
        scaled * (samples - node.batch[1] / unit_batch),
        scaled,
    ]
    fastest = max(node.rate[0] * (1 - 1e-9), updates / wish.training_seconds * (1 - 1e-9)) / unit_rate
    low = [float(node.size), -1e-9, -math.inf, fastest]
    high = [float(node.size), math.inf, 1e-9, node.rate[1] * (1 + 1e-9) / unit_rate]
    if wish.pool.most_vcpus is not None:
        rows.append(wish.vcpus / wish.pool.most_vcpus)
        low.append(-math.inf)
        high.append(1 + 1e-9)
    return rows, low, high
