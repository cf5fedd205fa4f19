"""Policies that have to be in time: spot machines while they last, on-demand ones when they must be.

``spot-wait``, ``safety-net`` and ``uniform-progress`` are those of "Can't Be Late" (Wu et al., NSDI 2024), decided by
the spot planner's own functions; a tick here is as long as they say, and a revocation is noticed at once.
``multi-region`` follows SkyNomad (arXiv, 2026): it learns by probing where machines are and how long they live. All
count work in seconds on the on-demand offer, its checkpoints included.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from stash.core import parsers
from stash.core.errors import UnitError, UserError
from stash.market.decisions import JobState, MoveTo, OfferBoard, Policy, PolicyAnswer, ProbeOffers, Stay, Wait
from stash.market.market_trace import HOUR
from stash.spot.policies.policies import (
    IDLE,
    ON_DEMAND,
    SPOT,
    Integers,
    PolicyName,
    SyncJob,
    next_hold,
    safe_on_spot,
)

TICK = 600.0
_PLANNERS: Mapping[str, PolicyName] = {"spot-wait": "spot", "safety-net": "greedy", "uniform-progress": "uniform"}
TEXTS = {
    "spot-wait": "spot alone, and waiting without",
    "safety-net": "spot, and waiting without; on demand from the last moment on",
    "uniform-progress": "as much done as time has passed: on demand once behind, spot when ahead",
    "multi-region": "spot where probing finds it cheapest for as long as it lives; on demand if that is too little",
}


@dataclass(frozen=True)
class _Course:
    """The job as the spot planner sees it, in seconds of wall time on the on-demand offer."""

    job: SyncJob
    fixed: int
    """The on-demand offer; -1: the policy does without."""
    spots: Integers
    kept: float
    """Left, were the machine taken away now."""
    fresh: float
    """Since the last checkpoint."""
    change: float
    """Until the held machine works."""
    elapsed: float

    @property
    def left(self) -> float:
        return self.kept - min(self.fresh, self.kept)

    @property
    def rest(self) -> float:
        return self.job.deadline_seconds - self.elapsed


def _course(state: JobState, board: OfferBoard, name: str) -> _Course:
    """Raises UserError without an on-demand offer."""
    market = board.market
    fixed = board.best(market.numbers(lambda offer: offer.kind == "on-demand"))
    spots = market.numbers(lambda offer: offer.kind == "spot")
    if fixed < 0 and name != "spot-wait":
        raise UserError("it needs an on-demand offer, which this market has none of now; add one (docs/market.md)")
    if fixed >= 0:
        spots = spots[market.rates[spots] >= market.rates[fixed] * 0.999]
    job, rate = market.job, float(market.rates[fixed] if fixed >= 0 else market.rates[spots].max())
    if math.isfinite(job.interval):
        rate *= job.interval / (job.interval + job.save_seconds)
    change = market.start_seconds(resumes=True) + job.save_seconds
    deadline = math.inf if state.deadline is None else state.deadline - state.started
    return _Course(
        SyncJob(
            work_seconds=state.samples / rate,
            deadline_seconds=deadline,
            change_seconds=change,
            on_demand_dollars=float(board.prices[fixed]) if fixed >= 0 else 0.0,
            interval_seconds=job.interval + job.save_seconds,
            keeps=False,
        ),
        fixed,
        spots,
        (state.samples - state.saved) / rate,
        (state.done - state.saved) / rate,
        max(state.ready - board.now, 0.0),
        board.now - state.started,
    )


def _planner(
    now: float, state: JobState, board: OfferBoard, final: bool | None, name: str, tick: float
) -> tuple[PolicyAnswer, bool]:
    """One tick of the spot planner's policy; memory: whether on-demand machines are held to the end."""
    course = _course(state, board, name)
    mode = _mode(state, board)
    best = board.best(course.spots)
    held_spot = mode == SPOT
    there = held_spot or best >= 0
    gap = min(tick, max(course.rest, 1.0))
    one = partial(np.full, 1)
    change = course.change if held_spot else course.job.change_seconds
    safe = safe_on_spot(
        course.job, one(course.kept), one(course.fresh if held_spot else 0.0), one(change), course.elapsed, gap
    )
    holds, last = next_hold(
        _PLANNERS[name],
        course.job,
        course.elapsed,
        gap,
        one(course.left),
        one(mode),
        one(there),
        one(bool(final)),
        safe,
    )
    until = now + tick
    if int(holds[0]) == ON_DEMAND:
        return _hold(state, course.fixed, until), bool(last[0])
    if int(holds[0]) == SPOT:
        return (Stay(until, changes=False) if held_spot else MoveTo(best, until, changes=False)), bool(last[0])
    return Wait(until, changes=False), bool(last[0])


def _mode(state: JobState, board: OfferBoard) -> int:
    if state.offer is None:
        return IDLE
    return SPOT if board.offers[state.offer].kind == "spot" else ON_DEMAND


def _hold(state: JobState, offer: int, until: float) -> PolicyAnswer:
    return Stay(until, changes=False) if state.offer == offer else MoveTo(offer, until, changes=False)


# Probing


@dataclass(frozen=True)
class _Seen:
    """What ``multi-region`` has learned so far; by offer."""

    lived: Mapping[int, float]
    """Seconds that its machines were seen alive, those that were given up included: censored lives count as time."""
    died: Mapping[int, int]
    held: int | None = None
    since: float = 0.0
    final: bool = False
    asked: float | None = None
    """When the policy was asked last."""
    there: float = 0.0
    """Seconds in which it held a spot machine, or had just found one."""
    watched: float = 0.0
    """Seconds in which it knew."""


_NOTHING = _Seen({}, {})
_PRIOR = 4 * HOUR
"""One death in so many seconds is taken to have been seen of every offer beforehand."""
_PRIOR_SHARE, _PRIOR_WEIGHT = 0.8, 4 * HOUR
"""Of the time a spot machine is taken to be there, until so many seconds were watched."""


def _multi_region(
    now: float, state: JobState, board: OfferBoard, seen: _Seen | None, tick: float
) -> tuple[PolicyAnswer, _Seen]:
    """Spot where a useful sample costs least; on demand when what spot is expected to do until the deadline is too
    little.

    A life that is exponential and seen for T seconds in which D machines died lasts L = (T + prior)/(D + 1) in the
    mean, censored lives included. Of it d = boot + fetch + save and half a checkpoint's interval bring nothing, so a
    useful sample costs p / (3600·q·(1 − (d + W/2)/L)). Spot was there in a share a of the time watched so far, and is
    expected to do a·(1 − (d + W/2)/L) of the rest. From the point of no return on, on-demand machines are held.
    """
    seen = _learned(seen or _NOTHING, now, state)
    course, mode = _course(state, board, "multi-region"), _mode(state, board)
    until = now + tick
    change = course.job.change_seconds
    lost = min(course.job.interval_seconds, course.kept) if mode == SPOT else 0.0
    if seen.final or course.rest < course.left + 2 * change + tick + lost:
        return _hold(state, course.fixed, until), replace(seen, final=True, held=None)
    costs = {int(offer): _useful_cost(board, seen, int(offer)) for offer in course.spots}
    order = sorted((offer for offer in costs if math.isfinite(costs[offer])), key=lambda each: (costs[each], each))
    found = next((offer for offer in order if state.probed.get(offer)), None)
    if found is not None:
        return MoveTo(found, until, changes=False), replace(seen, held=found, since=now)
    worthwhile = [o for o in order if costs[o] < float(board.costs[course.fixed]) and o not in state.probed]
    if mode == SPOT:
        assert state.offer is not None
        worthwhile = [offer for offer in worthwhile if _pays(board, state, costs, state.offer, offer)]
    if worthwhile:
        return ProbeOffers((worthwhile[0],)), seen
    if mode == SPOT:
        return Stay(until, changes=False), seen
    share = (seen.there + _PRIOR_SHARE * _PRIOR_WEIGHT) / (seen.watched + _PRIOR_WEIGHT)
    useful = max((_useful_share(board, seen, offer) for offer in order), default=0.0)
    if course.left > share * useful * course.rest or not order:
        return _hold(state, course.fixed, until), replace(seen, held=None)
    return Wait(until, changes=False), replace(seen, held=None)


def _learned(seen: _Seen, now: float, state: JobState) -> _Seen:
    """What the held machine told since the last question."""
    if seen.asked is not None:
        passed = now - seen.asked
        there = passed if seen.held is not None else 0.0
        seen = replace(seen, watched=seen.watched + passed, there=seen.there + there)
    seen = replace(seen, asked=now)
    if seen.held is None:
        return seen
    lived = {**seen.lived, seen.held: seen.lived.get(seen.held, 0.0) + now - seen.since}
    died = dict(seen.died)
    held: int | None = seen.held
    if state.offer != seen.held:
        held = None
        if state.revoked:
            died[seen.held] = died.get(seen.held, 0) + 1
    return replace(seen, lived=lived, died=died, held=held, since=now)


def _useful_share(board: OfferBoard, seen: _Seen, offer: int) -> float:
    """Of an expected life, what is spent on work that stays."""
    life = (seen.lived.get(offer, 0.0) + _PRIOR) / (seen.died.get(offer, 0) + 1)
    job = board.market.job
    idle = board.market.start_seconds(resumes=True) + job.save_seconds + min(job.interval, life) / 2
    return max(1 - idle / life, 0.0)


def _useful_cost(board: OfferBoard, seen: _Seen, offer: int) -> float:
    share, cost = _useful_share(board, seen, offer), float(board.costs[offer])
    return cost / share if share > 0 and not math.isnan(cost) else math.inf


def _pays(board: OfferBoard, state: JobState, costs: Mapping[int, float], held: int, other: int) -> bool:
    """Whether moving there saves more than it costs within what is left, or within a prior's life."""
    samples = min(state.left, _PRIOR * float(board.rates[other]))
    return (costs.get(held, math.inf) - costs[other]) * samples > board.move_cost(held, other)


def deadline_policy(name: str, option: str = "") -> Policy:
    """The policy of that name; ``option`` is its tick, like ``tick=5m``. Raises UserError."""
    tick = TICK
    if option:
        try:
            tick = parsers.duration(option.removeprefix("tick="))
        except UnitError as error:
            raise UserError(f"--policy {name}:{option}: {error}; a tick is a time, like tick=10m") from error
    called = f"{name}:{option}" if option else name
    if name == "multi-region":
        return Policy(called, partial(_multi_region, tick=tick), None, TEXTS[name])
    return Policy(called, partial(_planner, name=name, tick=tick), None, TEXTS[name])
