"""The least a job could have cost, had everything been known beforehand: a bound that no policy beats.

Between the moments at which offers change, prices stand still, so a course holds one offer, or none, through each
interval, for Σ p·u/3600 dollars. A lease of u seconds brings q·(u − d) samples: d = boot + fetch + save is what each
spends without working (one of them neither resumes nor saves in the end: r gives that back once). Bringing the data
to another region costs once. Who knows the future writes no other checkpoints, so this is less than any policy pays.
By Lagrange: at every price λ of a sample the best course is a shortest path through the intervals, and λ·samples +
its length a bound; the best one is taken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from stash.market.job_market import JobMarket
from stash.market.market_trace import HOUR
from stash.predict.draws import Array, Bools

_PRICES = 60
"""Of a sample, that are tried until the best one is known to a millionth."""


@dataclass(frozen=True, eq=False)
class _Grid:
    """Offers and intervals: ``[offer, interval]``."""

    length: Array
    there: Bools
    price: Array
    """Dollars a second."""
    rate: Array
    """Samples a second, ``[offer]``."""
    idle: float
    """d."""
    work: float
    """Samples, less the most that one lease's d has too many."""
    abroad: Array
    """Dollars that bringing the data to where an offer is costs, once for each region: ``[offer]``."""


def foresee(market: JobMarket, start: float, end: float) -> float | None:
    """The least cost of the job from ``start``, done by ``end``; ``None``: no course is done by then."""
    grid = _grid(market, start, min(end, float(market.trace.end)))
    return max(_bound(grid), 0.0) if _is_enough(grid) else None


def _grid(market: JobMarket, start: float, end: float) -> _Grid:
    trace, job, numbers = market.trace, market.job, np.arange(len(market.offers))
    changes = trace.at[(trace.at > start) & (trace.at < end)]
    edges = np.unique(np.concatenate([[start, end], changes.astype(float)]))
    pieces = trace.find(numbers[:, None], edges[:-1])
    there = market.there[pieces]
    price = np.where(there, trace.price[pieces], 0.0) * job.machines / HOUR
    idle = market.start_seconds(resumes=True) + job.save_seconds
    back = float(market.rates.max()) * (job.checkpoint / job.fetch + job.save_seconds)
    home = market.home
    abroad = [0.0 if home is None else market.data_dollars(home, each) for each in range(len(numbers))]
    return _Grid(np.diff(edges), there, price, market.rates, idle, max(job.samples - back, 0.0), np.array(abroad))


def _is_enough(grid: _Grid) -> bool:
    """Whether the course of most samples has all."""
    return _path(replace(grid, price=np.zeros_like(grid.price)), 1.0)[1] >= grid.work


def _bound(grid: _Grid) -> float:
    """Of all courses: those that stay where the data are, and those that pay for bringing them."""
    bound, away = _lagrange(grid), grid.abroad > 0
    if not away.any():
        return bound
    least = bound + float(grid.abroad[away].min())
    at_home = replace(grid, there=grid.there & ~away[:, None])
    return min(least, _lagrange(at_home)) if _is_enough(at_home) else least


def _lagrange(grid: _Grid) -> float:
    """The best bound of all prices of a sample, from none to one at which every second and start is worth working."""
    dearest = max(float((grid.price / grid.rate[:, None]).max()), 1e-12)
    low, high, best = 0.0, dearest * (8.0 + 16.0 * grid.idle / max(float(grid.length.min()), 1.0)), 0.0
    for _ in range(_PRICES):
        middle = (low + high) / 2
        length, done = _path(grid, middle)
        best = max(best, middle * grid.work + length)
        low, high = (low, middle) if done >= grid.work else (middle, high)
        if high - low < 1e-7 * high:
            break
    return best


def _path(grid: _Grid, worth: float) -> tuple[float, float]:
    """The course of least Σ p·u − worth·samples: (that, samples done)."""
    cost = np.where(grid.there, (grid.price - worth * grid.rate[:, None]) * grid.length, np.inf)
    starting = grid.rate * grid.idle
    value, done = np.full(len(grid.rate), np.inf), np.zeros(len(grid.rate))
    idle, idle_done = 0.0, 0.0
    for number, length in enumerate(grid.length):
        fresh = idle + worth * starting
        goes_on = value <= fresh
        value = np.where(goes_on, value, fresh) + cost[:, number]
        done = np.where(goes_on, done, idle_done - starting) + grid.rate * length
        last = int(value.argmin())
        if value[last] < idle:
            idle, idle_done = float(value[last]), float(done[last])
    return idle, idle_done
