"""The least a job could have cost, had everything been known beforehand: a bound that no policy beats, and a course.

Between the moments at which offers change, prices stand still, so a course holds one offer, or none, through each
interval, for Σ p·u/3600 dollars. A lease of u seconds brings q·(u − d) samples: d = boot + fetch + save is what each
spends without working (one of them neither resumes nor saves in the end: r gives that back once). Bringing the data
to another region costs once. A lease that is revoked in its first, free hour is an offer of its own, at no price. Who
knows the future writes no other checkpoints, so this is less than any policy pays. By Lagrange: at every price λ of a
sample the best course is a shortest path through the intervals, and λ·samples + its length a bound; the best λ's
course is rounded to a whole one. The gap between bound and course is always known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from stash.core.errors import UserError
from stash.market.decisions import JobMarket, JobState, MoveTo, OfferBoard, Policy, Wait
from stash.market.market_trace import HOUR
from stash.market.replaying import UncoveredError, data_home, play
from stash.predict.draws import Array, Bools

_PRICES = 60
"""Of a sample, that are tried until the best one is known to a millionth."""


@dataclass(frozen=True, eq=False)
class Foreseen:
    """The least cost from one start, as far as it is known."""

    start: float
    bound: float | None
    """Dollars that no course goes below; ``None``: none is done in time."""
    dollars: float | None
    """Of a course that was found and replayed; ``None``: none."""
    earliest: float | None
    """Seconds that the fastest course takes; ``None``: none is done."""

    @property
    def gap(self) -> float | None:
        """Of the course above the bound, as a fraction."""
        if self.bound is None or self.dollars is None:
            return None
        return 0.0 if self.bound <= 0 else max(self.dollars / self.bound - 1, 0.0)


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
    region: list[tuple[str, str]]
    """``[offer]``."""
    real: list[int]
    """Which of the market's each offer is."""


def foresee(market: JobMarket, start: float, end: float) -> Foreseen:
    """The least cost of the job from ``start``, done by ``end``."""
    grid = _grid(market, start, min(end, float(market.trace.end)))
    fastest = _earliest(grid)
    if fastest is None:
        return Foreseen(start, None, None, None)
    bound, held = _bounded(grid)
    course = _followed(market, grid, _of_intervals(grid, held), start, end)
    return Foreseen(start, max(bound, 0.0), course, fastest - start)


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
    region = [market.homes[each] for each in rows]
    return _Grid(edges, np.diff(edges), there, price, rate, idle, back, job.samples, abroad, region, rows)


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


def _bounded(grid: _Grid) -> tuple[float, list[int]]:
    """(bound, offer held in each interval or -1): a course stays where the data are, or pays for bringing them."""
    bound, held = _lagrange(grid)
    away = grid.abroad > 0
    if not away.any():
        return bound, held
    least = float(grid.abroad[away].min())
    if away.all():
        return bound + least, held
    there = np.where(away[:, None], False, grid.there)
    at_home, held_there = _lagrange(replace(grid, there=there))
    if all(each < 0 for each in held_there):
        return bound + least, held
    return min(bound + least, at_home), held if bound + least <= at_home else held_there


def _lagrange(grid: _Grid) -> tuple[float, list[int]]:
    """(bound, offer held in each interval or -1)."""
    back = float(grid.back.max())
    work = max(grid.samples - back, 0.0)
    low, high = 0.0, 4.0 * _price_that_does_all(grid)
    best, course = 0.0, [-1] * len(grid.length)
    for _ in range(_PRICES):
        middle = (low + high) / 2
        length, held, done = _path(grid, middle)
        best = max(best, middle * work + length)
        if done >= work:
            high, course = middle, held
        else:
            low = middle
        if high - low < 1e-7 * high:
            break
    return best, course


def _price_that_does_all(grid: _Grid) -> float:
    """A price of a sample at which every second is worth working, and every start."""
    dearest = float((grid.price / grid.rate[:, None]).max())
    return max(dearest, 1e-12) * (2.0 + 4.0 * grid.idle / max(float(grid.length.min()), 1.0))


def _path(grid: _Grid, worth: float) -> tuple[float, list[int], float]:
    """The course of least Σ p·u − worth·samples: (that, offer held in each interval, samples done)."""
    count, intervals = len(grid.rate), len(grid.length)
    cost = np.where(grid.there, (grid.price - worth * grid.rate[:, None]) * grid.length, np.inf)
    starting = worth * grid.rate * grid.idle
    value, idle = np.full(count, np.inf), 0.0
    came = np.zeros((intervals, count), dtype=np.int32)
    rests = np.zeros(intervals, dtype=np.int32)
    for number in range(intervals):
        last = int(value.argmin())
        away, rest = (float(value[last]), last) if value[last] < idle else (idle, -1)
        fresh = away + starting
        goes_on = value <= fresh
        came[number] = np.where(goes_on, np.arange(count), rest)
        value = np.where(goes_on, value, fresh) + cost[:, number]
        rests[number] = rest
        idle = away
    last = int(value.argmin())
    at = last if value[last] < idle else -1
    total = min(float(value[last]), idle)
    held: list[int] = [-1] * intervals
    for number in range(intervals - 1, -1, -1):
        held[number] = at
        at = int(came[number, at]) if at >= 0 else int(rests[number])
    done, before = 0.0, -1
    for number, offer in enumerate(held):
        if offer >= 0:
            done += grid.rate[offer] * (grid.length[number] - (grid.idle if offer != before else 0.0))
        before = offer
    return total, held, float(done)


# A course replayed: what it really comes to


@dataclass(frozen=True)
class _Stretch:
    """An offer held for a while; row numbers of the grid."""

    begin: float
    end: float
    offer: int


def _of_intervals(grid: _Grid, held: list[int]) -> list[_Stretch]:
    """The stretches of a course that holds one offer through each interval."""
    found: list[_Stretch] = []
    for number, offer in enumerate(held):
        begin, end = float(grid.edges[number]), float(grid.edges[number + 1])
        if offer >= 0 and found and found[-1].offer == offer and found[-1].end == begin:
            found[-1] = replace(found[-1], end=end)
        elif offer >= 0:
            found.append(_Stretch(begin, end, offer))
    return found


def _followed(market: JobMarket, grid: _Grid, course: list[_Stretch], start: float, end: float) -> float | None:
    """Dollars of the course as the replay bills it, saved just in time; ``None`` if it is not done by ``end``."""
    if not course:
        return None
    real = [replace(each, offer=grid.real[each.offer]) for each in course]
    plan = Policy("hindsight", _Follower(real, market.job.save_seconds))
    known = replace(market, clairvoyant=True)
    try:
        found = play(known, plan, start, end - start)
    except (UncoveredError, UserError):
        return None
    return None if found.late else found.dollars


@dataclass(frozen=True, eq=False)
class _Follower:
    """Holds what a course says, until it is revoked where that is when the stretch ends; else saves before the end.

    The last stretch ends with the training. Memory: which stretch is held, and whether it has begun.
    """

    course: list[_Stretch]
    save: float

    def __call__(
        self, now: float, state: JobState, board: OfferBoard, memory: tuple[int, bool] | None
    ) -> tuple[MoveTo | Wait, tuple[int, bool]]:
        number, begun = memory or (0, False)
        stretch = self.course[number]
        last = number + 1 == len(self.course)
        if begun and not last and state.offer is not None:  # its time to save has come
            return Wait(stretch.end, changes=False), (number + 1, False)
        if begun and not last:  # it was revoked, or has saved
            number, begun, stretch = number + 1, False, self.course[number + 1]
            last = number + 1 == len(self.course)
        if now < stretch.begin - 1e-6:
            return Wait(stretch.begin, changes=False), (number, False)
        if not board.there[stretch.offer]:
            return Wait(board.next_change), (number, False)
        if state.offer is not None:  # of the stretch before, which lasted until now
            return Wait(now, changes=False), (number, False)
        trace = board.market.trace
        gone = float(board.market.until[trace.piece(stretch.offer, now)])
        ends = math.inf if last or gone <= stretch.end + 1e-6 else max(stretch.end - self.save, now + 1.0)
        return MoveTo(stretch.offer, ends, changes=False), (number, True)
