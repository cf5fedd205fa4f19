"""The cheapest fleet of a pool too large to enumerate, exactly: branch and bound over boxes of fleets.

For a fixed number of workers N the paper's model has fixed rates r of every type. A box bounds the mean batch and the
samples per second V (with R which types the fastest is among, so that (5) is bounded). There the updates j are at
least j_lo, the updates per second X at least X_lo, and a fleet of price P costs (j_lo + start · X_lo) · P / X at
least: a ratio of sums over its machines, and the box's edges are sums too. A linear program bounds it (Charnes and
Cooper, 1962). Boxes that this does not prove empty are halved until their fleets can be listed, machine by machine as
far as all sums can still be kept, and weighed.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import numpy.typing as npt
from scipy.optimize import LinearConstraint, milp

from stash.predict.draws import Array
from stash.spot.choose.fleet_costs import HOUR, FleetWish, neighbours, weigh
from stash.spot.model.queueing import iteration_seconds

SECONDS = 6.0
"""Of a processor, until a search gives up proving."""
TOLERANCE = 1e-6
"""Relative: a fleet that much cheaper is not looked for."""
_PRICES_OF_SPEED = 8
"""Fleets tried for each number of workers before anything is proven: by price less so much for speed."""
_LISTED, _LOOSE = 20_000, 0.05
"""Partial fleets that a listing may hold, and by how much a box's least updates may err where one is tried."""
_TIGHT = 1e-7
_PRICES = (0.1, 0.3, 1.0, 3.0)
"""Of an edge, in those of the fleet: together they rule out more than one after the other."""
_EMPTY = 2
"""What HiGHS says of a program without a solution."""


@dataclass(frozen=True)
class CheapestFleet:
    """The best fleet, ``None`` if there is none, and how sure that is."""

    counts: Array | None
    dollars: float
    gap: float
    """0 within ``TOLERANCE``; more if it ran out of time."""
    evaluations: int
    """Fleets weighed."""
    nodes: int
    """Boxes looked at."""


@dataclass(frozen=True)
class _Box:
    size: int
    batch: tuple[float, float]
    speed: tuple[float, float]
    """V, samples per second."""
    fastest: tuple[int, int] | None = None
    """With R: between which two types, slowest first, the fastest worker lies."""


@dataclass
class _Search:
    """One search under way: the best fleet, and what was counted."""

    wish: FleetWish
    seconds: Array
    """Of an iteration, by size of the fleet less 1: [size, type]."""
    best: float = math.inf
    counts: Array | None = None
    evaluations: int = 0
    nodes: int = 0
    fastest: float = math.inf
    """Seconds of the fastest fleet, while none is feasible."""

    def speeds(self, size: int) -> Array:
        """vᵢ: samples per second of each type in a fleet of ``size``."""
        found: Array = self.wish.samples / self.seconds[size - 1]
        return found

    def try_fleets(self, counts: Array) -> None:
        """Weigh ``counts`` [fleet, type]; keep the cheapest feasible one, and then any neighbour that is cheaper.

        While none is feasible, from the fastest to faster ones.
        """
        while len(counts):
            self.evaluations += len(counts)
            found = weigh(self.wish, counts, self.seconds[counts.sum(axis=1).astype(int) - 1])
            dollars = np.where(found.feasible, found.dollars, math.inf)
            at = int(np.argmin(dollars))
            if dollars[at] < self.best:
                self.best, self.counts = float(dollars[at]), counts[at]
            elif self.counts is None and found.seconds.min() < self.fastest:
                at = int(np.argmin(found.seconds))
                self.fastest = float(found.seconds[at])
            else:
                return
            counts = neighbours(self.wish, counts[at])

    @property
    def limit(self) -> float:
        """Dollar-hours · seconds: what a better fleet costs less than, for prices per hour and times in seconds."""
        budget = self.wish.budget_dollars
        ceiling = min(self.best * (1 - TOLERANCE), math.inf if budget is None else budget * (1 + 1e-9))
        return ceiling * HOUR


def cheapest(wish: FleetWish, seconds: float = SECONDS) -> CheapestFleet:
    """The cheapest fleet in time, by the paper's model; proven unless that takes more processor ``seconds``."""
    until, sizes = time.process_time() + seconds, np.arange(1, sum(wish.quotas) + 1)
    search = _Search(wish, iteration_seconds(wish.pool, sizes.astype(float)))
    search.try_fleets(likely(wish))
    order = count()
    quickest = _quickest(search, sizes)
    waiting = [(quickest[n - 1], next(order), _root(search, int(n)), False) for n in sizes[quickest < search.limit]]
    heapq.heapify(waiting)
    unproven = math.inf
    while waiting and waiting[0][0] < search.limit and time.process_time() < until:
        bound, _, box, weighed = heapq.heappop(waiting)
        if not weighed:
            search.nodes += 1
            bound = max(bound, _bound(search, box))
            if bound < search.limit:
                heapq.heappush(waiting, (bound, next(order), box, True))
            continue
        loose = _looseness(search, box)
        fleets = _listed(search, box) if max(loose) < _LOOSE else None
        if fleets is not None:
            search.try_fleets(fleets)
        elif max(loose) < _TIGHT:
            unproven = min(unproven, bound)
        else:
            for child in _halves(box, loose):
                heapq.heappush(waiting, (bound, next(order), child, False))
    left, gap = min(unproven, waiting[0][0] if waiting else math.inf), 0.0
    if search.counts is None:
        gap = math.inf if left < math.inf else 0.0
    elif left < search.limit:
        gap = max(0.0, 1 - left / HOUR / search.best)
    return CheapestFleet(search.counts, search.best, gap, search.evaluations, search.nodes)


def _quickest(search: _Search, sizes: npt.NDArray[np.int_]) -> Array:
    """Dollar-hours · seconds that no fleet of so many undercuts, with the lowest prices and all as the fastest."""
    wish, curve = search.wish, search.wish.pool.loss
    steep = min(curve.gamma2 * wish.samples.min(), curve.gamma2 * wish.samples.max()) + curve.gamma3
    spread = 1.0 if curve.gamma4 is None else curve.gamma4
    updates = max(steep, 0.0) * np.sqrt(spread * sizes) / max(wish.loss - curve.gamma5, 1e-300) - curve.gamma1
    cheap = np.cumsum(np.sort(np.repeat(wish.prices, wish.quotas))) + wish.server_price
    seconds = np.maximum(updates, 1.0) * search.seconds.min(axis=1) / sizes
    found: Array = cheap * (seconds + wish.pool.start_seconds)
    return np.where(seconds <= wish.training_seconds * (1 + 1e-9), found, np.inf)


def likely(wish: FleetWish) -> Array:
    """Fleets of all small sizes and ever fewer of the large ones, best for some price of speed: [fleet, type]."""
    most, quotas = sum(wish.quotas), np.array(wish.quotas)
    sizes = np.union1d(np.arange(1, min(most, 8) + 1), np.round(np.geomspace(1, most, 24)).astype(int))
    found = []
    for size, seconds in zip(sizes, iteration_seconds(wish.pool, sizes.astype(float)), strict=True):
        scale = float(np.median(wish.prices * seconds)) if wish.prices.any() else 1.0
        worths = scale * np.geomspace(1e-2, 1e2, _PRICES_OF_SPEED)
        found.append(_least(wish.prices - worths[:, None] / seconds, quotas, int(size)))
    return np.concatenate(found)


def _least(values: Array, quotas: Array, size: int) -> Array:
    """The ``size`` machines within quotas of least value, for each row of ``values``: counts, [row, type]."""
    order = np.argsort(values, axis=1, kind="stable")
    before = np.cumsum(quotas[order], axis=1) - quotas[order]
    found = np.zeros(values.shape)
    np.put_along_axis(found, order, np.clip(size - before, 0, quotas[order]).astype(float), axis=1)
    return found


def _root(search: _Search, size: int) -> _Box:
    """All fleets of ``size``."""
    wish, quotas = search.wish, np.array(search.wish.quotas)
    usable = quotas > 0
    speeds = search.speeds(size)
    ends = _least(np.stack([np.where(usable, speeds, np.inf), np.where(usable, -speeds, np.inf)]), quotas, size)
    span = (float(ends[0] @ speeds), float(ends[1] @ speeds))
    batches = (float(wish.samples[usable].min()), float(wish.samples[usable].max()))
    return _Box(size, batches, span, None if wish.pool.loss.gamma4 is None else (0, len(quotas) - 1))


def _updates(search: _Search, box: _Box) -> float:
    """j_lo: no fleet of the box reaches the loss in fewer updates; infinite where equation (3) says nothing.

    R is at least (1 − w₁) · √(N / (N − 1)), others being equally fast, with the largest w₁ of the box.
    """
    curve, wish = search.wish.pool.loss, search.wish
    ends = [curve.gamma2 * batch + curve.gamma3 for batch in box.batch]
    if max(ends) <= 0 or wish.loss <= curve.gamma5:
        return math.inf
    imbalance = 0.0
    if box.fastest is not None and box.size > 1:
        speed = np.sort(search.speeds(box.size))[box.fastest[1]]
        share = min(1.0, float(speed) / max(box.speed[0], 1e-300))
        imbalance = (1 - share) * math.sqrt(box.size / (box.size - 1))
    spread = 1.0 if curve.gamma4 is None else imbalance + curve.gamma4
    steep = max(min(ends), 0.0) * math.sqrt(spread * box.size)
    return max(steep / (wish.loss - curve.gamma5) - curve.gamma1, 1.0)


def _weight(search: _Search, box: _Box) -> float:
    """j_lo + start · X_lo."""
    return _updates(search, box) + search.wish.pool.start_seconds * box.speed[0] / box.batch[1]


def _least_rate(search: _Search, box: _Box) -> float:
    """X of a fleet of the box that is in time."""
    left = search.wish.training_seconds
    return _updates(search, box) / left * (1 - 1e-9) if left > 0 else math.inf


def _looseness(search: _Search, box: _Box) -> tuple[float, float, float]:
    """By how much j_lo + start · X_lo is too low at the other end of the box: of mean batch, V and fastest type."""
    weight = _weight(search, box)
    worst = box.batch[0] if search.wish.pool.loss.gamma2 < 0 else box.batch[1]
    ends = [replace(box, batch=(worst, worst)), replace(box, speed=(box.speed[1], box.speed[1]))]
    if box.fastest is not None and box.fastest[0] < box.fastest[1]:
        ends.append(replace(box, fastest=(box.fastest[0], box.fastest[0])))
    found = [_weight(search, end) / weight - 1 for end in ends]
    return found[0], found[1], found[2] if len(found) > 2 else 0.0


def _halves(box: _Box, loose: tuple[float, float, float]) -> Iterator[_Box]:
    """The box cut where it is loosest."""
    by_batch, by_speed, by_fastest = loose
    if box.fastest is not None and by_fastest > 0 and by_fastest >= max(by_batch, by_speed):
        first, last = box.fastest
        yield replace(box, fastest=(first, (first + last) // 2))
        yield replace(box, fastest=((first + last) // 2 + 1, last))
        return
    low, high = box.batch if by_batch >= by_speed else box.speed
    for part in ((low, math.sqrt(low * high)), (math.sqrt(low * high), high)):
        yield replace(box, batch=part) if by_batch >= by_speed else replace(box, speed=part)


def _edges(search: _Search, box: _Box) -> tuple[Array, Array]:
    """What fleets of the box keep, Σ n · values ≤ most: ([sum, type], [sum]), scaled to about 1."""
    wish, rates, speeds = search.wish, 1 / search.seconds[box.size - 1], search.speeds(box.size)
    found = [
        (-rates * (wish.samples - box.batch[0]), 0.0),
        (rates * (wish.samples - box.batch[1]), 0.0),
        (-speeds, -box.speed[0]),
        (speeds, box.speed[1]),
        (-rates, -_least_rate(search, box)),
    ]
    if wish.pool.most_vcpus is not None:
        found.append((wish.vcpus, wish.pool.most_vcpus))
    if box.fastest is not None:
        among = np.zeros(len(rates))
        among[np.argsort(speeds, kind="stable")[box.fastest[0] : box.fastest[1] + 1]] = -1.0
        found.append((among, -1.0))
    values, most = np.stack([each for each, _ in found]), np.array([end for _, end in found])
    scale = np.maximum(np.abs(values).max(axis=1), 1e-300)
    return values / scale[:, None], most / scale + 1e-9 * box.size


def _quotas(search: _Search, box: _Box) -> Array:
    quotas: Array = np.minimum(np.array(search.wish.quotas, dtype=float), box.size)
    if box.fastest is not None:
        order = np.argsort(search.speeds(box.size), kind="stable")
        quotas[order[box.fastest[1] + 1 :]] = 0.0
    return quotas


def _bound(search: _Search, box: _Box) -> float:
    """Dollar-hours · seconds that no fleet of the box undercuts; infinite if it has none.

    With y = n / X and t = 1 / X the ratio is linear. The fleet next to the fractional one is tried.
    """
    wish, rates, weight = search.wish, 1 / search.seconds[box.size - 1], _weight(search, box)
    quotas = _quotas(search, box)
    used = np.flatnonzero(quotas)
    if not math.isfinite(weight) or quotas.sum() < box.size or not math.isfinite(_least_rate(search, box)):
        return math.inf
    values, most = _edges(search, box)
    unit = float(rates[used].mean()) * box.size
    scarce = np.flatnonzero(quotas[used] < box.size)
    within = np.zeros((len(scarce), len(used) + 1))
    within[np.arange(len(scarce)), scarce], within[:, -1] = 1.0, -quotas[used[scarce]]
    whole = [np.append(rates[used] / unit, 0.0), np.append(np.ones(len(used)), -float(box.size))]
    rows = np.concatenate([whole, np.column_stack([values[:, used], -most]), within])
    low, high = np.full(len(rows), -np.inf), np.zeros(len(rows))
    low[:2], high[:2] = (1.0, 0.0), (1.0, 0.0)
    price = weight * np.append(wish.prices[used], wish.server_price)
    scale = float(price.max()) or 1.0
    solved = milp(price / scale, constraints=LinearConstraint(rows, low, high), options={"presolve": False})
    if solved.x is None:
        return math.inf if solved.status == _EMPTY else 0.0
    search.try_fleets(_whole(solved.x[:-1] / max(solved.x[-1], 1e-300), used, quotas, box.size)[None, :])
    return max(float(solved.fun) * scale / unit * (1 - 1e-9), 0.0)


def _whole(shares: Array, used: npt.NDArray[np.int_], quotas: Array, size: int) -> Array:
    """A fleet of ``size`` next to these fractional counts of the types ``used``."""
    found = np.zeros(len(quotas))
    found[used] = np.minimum(np.floor(shares + 1e-9), quotas[used])
    for place in np.argsort(found[used] - shares, kind="stable"):
        if found.sum() >= size:
            break
        found[used[place]] += float(found[used[place]] < quotas[used[place]])
    return found


def _listed(search: _Search, box: _Box) -> Array | None:
    """Every fleet of the box that may be better than the best known; ``None`` if there are too many to list."""
    quotas = _quotas(search, box)
    values, most = _limits(search, box)
    used = np.flatnonzero(quotas)
    order = used[np.argsort(values[0, used], kind="stable")]
    values, machines = values[:, order], quotas[order].astype(int)
    rest = _rest(values, machines, box.size)
    size, total = np.zeros(1, dtype=int), np.zeros((1, len(most)))
    steps: list[tuple[npt.NDArray[np.int_], npt.NDArray[np.int_]]] = []
    for kind, quota in enumerate(machines):
        parent, taken = (
            each.ravel() for each in np.meshgrid(np.arange(len(size)), np.arange(quota + 1), indexing="ij")
        )
        fits = size[parent] + taken <= box.size
        parent, taken = parent[fits], taken[fits]
        size, total = size[parent] + taken, total[parent] + taken[:, None] * values[:, kind]
        fits = (total + rest[kind + 1][:, box.size - size].T <= most).all(axis=1)
        parent, taken, size, total = parent[fits], taken[fits], size[fits], total[fits]
        if len(size) > _LISTED:
            return None
        steps.append((parent, taken))
    found = np.zeros((len(size), len(search.wish.quotas)))
    at = np.arange(len(size))
    for kind in range(len(order) - 1, -1, -1):
        parent, taken = steps[kind]
        found[:, order[kind]] = taken[at]
        at = parent[at]
    return found


def _limits(search: _Search, box: _Box) -> tuple[Array, Array]:
    """The box's edges, and before them that a fleet is cheaper than the best known: alone, and with each edge."""
    edges, most = _edges(search, box)
    if not math.isfinite(search.limit):
        return edges, most
    weight, rates = _weight(search, box), 1 / search.seconds[box.size - 1]
    cheaper = weight * search.wish.prices - search.limit * rates
    scale = float(np.abs(cheaper).max())
    cheaper, end = cheaper / scale, -weight * search.wish.server_price / scale
    mixed = [
        (cheaper + price * row, end + price * last)
        for row, last in zip(edges, most, strict=True)
        for price in _PRICES
    ]
    values, ends = [cheaper, *(row for row, _ in mixed), *edges], [end, *(last for _, last in mixed), *most]
    return np.stack(values), np.array(ends) + 1e-9 * box.size


def _rest(values: Array, quotas: npt.NDArray[np.int_], size: int) -> list[Array]:
    """The least sums of so many machines of the types from each on: [type][sum, machines], infinite if too many."""
    found, machines = [], np.zeros((len(values), 0))
    for kind in range(len(quotas), -1, -1):
        if kind < len(quotas):
            own = np.repeat(values[:, kind : kind + 1], quotas[kind], axis=1)
            machines = np.sort(np.concatenate([machines, own], axis=1), axis=1)[:, :size]
        least = np.full((len(values), size + 1), np.inf)
        least[:, 0] = 0.0
        least[:, 1 : machines.shape[1] + 1] = np.cumsum(machines, axis=1)
        found.append(least)
    return found[::-1]
