"""The least a job could have cost, had everything been known beforehand: a bound that no policy beats.

Between the moments at which offers change, prices stand still, so a course holds one offer, or none, through each
interval, for Σ p·u/3600 dollars. A lease of u seconds brings q·(u − d) samples: d = boot + fetch + save is what each
spends without working (one of them neither resumes nor saves in the end: r gives that back once). Bringing the data
to another region costs once. A lease that is revoked in its first, free hour is an offer of its own, at no price. Who
knows the future writes no other checkpoints, so this is less than any policy pays. By Lagrange: at every price λ of a
sample the best course is a shortest path through the intervals, and λ·samples + its length a bound; the best one is
taken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from stash.market.decisions import JobMarket
from stash.market.market_trace import HOUR
from stash.market.replaying import data_home
from stash.predict.draws import Array, Bools

_PRICES = 60
"""Of a sample, that are tried until the best one is known to a millionth."""


@dataclass(frozen=True, eq=False)
class Foreseen:
    """The least cost from one start, as far as it is known."""

    start: float
    bound: float | None
    """Dollars that no course goes below; ``None``: none is done in time."""
    earliest: float | None
    """Seconds that the fastest course takes; ``None``: none is done."""


@dataclass(frozen=True, eq=False)
class _Grid:
    """Offers and intervals: ``[offer, interval]``; free first hours are offers of their own, behind the others."""

    edges: Array
    length: Array
    there: Bools
    price: Array
    """Dollars a second."""
    rate: Array
    """Samples a second, ``[offer]``."""
    idle: float
    """d."""
    back: Array
    """r: samples that one lease's d has too many, ``[offer]``."""
    samples: float
    abroad: Array
    """Dollars that bringing the data to where an offer is costs, once for each region: ``[offer]``."""


def foresee(market: JobMarket, start: float, end: float) -> Foreseen:
    """The least cost of the job from ``start``, done by ``end``."""
    grid = _grid(market, start, min(end, float(market.trace.end)))
    fastest = _earliest(grid)
    if fastest is None:
        return Foreseen(start, None, None)
    return Foreseen(start, max(_bounded(grid), 0.0), fastest - start)


def _grid(market: JobMarket, start: float, end: float) -> _Grid:
    trace, job = market.trace, market.job
    changes = trace.at[(trace.at > start) & (trace.at < end)].astype(float)
    count = len(market.offers)
    free = [(o, gone) for o in range(count) for gone in _free_ends(market, o, start, end)]
    hours = [max(gone - market.rules[o].revoked_free, start) for o, gone in free]
    edges = np.unique(np.concatenate([[start, end], changes, hours]))
    begins = edges[:-1]
    there, price = np.zeros((count, len(begins)), dtype=bool), np.zeros((count, len(begins)))
    for offer in range(count):
        pieces = np.array([trace.piece(offer, each) for each in begins], dtype=np.int64)
        there[offer] = market.there[pieces]
        price[offer] = np.where(there[offer], trace.price[pieces], 0.0) * job.machines / HOUR
    rate = market.rates
    if free:
        more = np.zeros((len(free), len(begins)), dtype=bool)
        for row, ((offer, gone), begin) in enumerate(zip(free, hours, strict=True)):
            more[row] = there[offer] & (begins >= begin) & (begins < gone)
        there = np.concatenate([there, more])
        price = np.concatenate([price, np.zeros(more.shape)])
        rate = np.concatenate([rate, rate[[offer for offer, _ in free]]])
    resumed = job.checkpoint / job.fetch
    idle = market.start_seconds(resumes=True) + job.save_seconds
    back = rate * (resumed + job.save_seconds)
    rows = [*range(count), *(offer for offer, _ in free)]
    home = data_home(market)
    abroad = np.array([0.0 if home is None else market.data_dollars(home, market.offers[each]) for each in rows])
    return _Grid(edges, np.diff(edges), there, price, rate, idle, back, job.samples, abroad)


def _free_ends(market: JobMarket, offer: int, start: float, end: float) -> list[float]:
    """When a lease of ``offer`` may be revoked within its free time."""
    if market.rules[offer].revoked_free <= 0:
        return []
    trace = market.trace
    rows = np.arange(trace.first[offer] + 1, trace.first[offer + 1])
    gone = market.there[rows - 1] & ~market.there[rows] & ~np.isnan(trace.price[rows])
    at = trace.at[rows][gone]
    return [float(each) for each in at if start < each < end]


def _earliest(grid: _Grid) -> float | None:
    """The first moment at which the training can be done: the most samples by each moment, interval by interval."""
    most = np.full(len(grid.rate), -np.inf)
    idle = 0.0
    back = float(grid.back.max())
    for number, length in enumerate(grid.length):
        there = grid.there[:, number]
        kept = np.where(there, np.maximum(most, idle - grid.rate * grid.idle), -np.inf)
        after = kept + grid.rate * length
        if after.max() + back >= grid.samples:
            short = np.where(there, (grid.samples - back - kept) / grid.rate, np.inf)
            return float(grid.edges[number] + max(short.min(), 0.0))
        most = after
        idle = max(idle, float(after.max()))
    return None


def _bounded(grid: _Grid) -> float:
    """A course stays where the data are, or pays for bringing them."""
    bound = _lagrange(grid)
    away = grid.abroad > 0
    if not away.any():
        return bound
    least = float(grid.abroad[away].min())
    if away.all():
        return bound + least
    at_home = replace(grid, there=np.where(away[:, None], False, grid.there))
    if _earliest(at_home) is None:
        return bound + least
    return min(bound + least, _lagrange(at_home))


def _lagrange(grid: _Grid) -> float:
    """The best bound of all prices of a sample."""
    work = max(grid.samples - float(grid.back.max()), 0.0)
    low, high = 0.0, 4.0 * _price_that_does_all(grid)
    best = 0.0
    for _ in range(_PRICES):
        middle = (low + high) / 2
        length, done = _path(grid, middle)
        best = max(best, middle * work + length)
        if done >= work:
            high = middle
        else:
            low = middle
        if high - low < 1e-7 * high:
            break
    return best


def _price_that_does_all(grid: _Grid) -> float:
    """A price of a sample at which every second is worth working, and every start."""
    dearest = float((grid.price / grid.rate[:, None]).max())
    return max(dearest, 1e-12) * (2.0 + 4.0 * grid.idle / max(float(grid.length.min()), 1.0))


def _path(grid: _Grid, worth: float) -> tuple[float, float]:
    """The course of least Σ p·u − worth·samples: (that, samples done)."""
    count, intervals = len(grid.rate), len(grid.length)
    cost = np.where(grid.there, (grid.price - worth * grid.rate[:, None]) * grid.length, np.inf)
    starting = worth * grid.rate * grid.idle
    value, idle = np.full(count, np.inf), 0.0
    done, idle_done = np.zeros(count), 0.0
    for number in range(intervals):
        last = int(value.argmin())
        if value[last] < idle:
            idle, idle_done = float(value[last]), float(done[last])
        fresh = idle + starting
        goes_on = value <= fresh
        value = np.where(goes_on, value, fresh) + cost[:, number]
        done = np.where(goes_on, done, idle_done - grid.rate * grid.idle) + grid.rate * grid.length[number]
    last = int(value.argmin())
    return (float(value[last]), float(done[last])) if value[last] < idle else (idle, idle_done)
