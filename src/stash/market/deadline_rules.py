"""Policies that have to be in time: spot machines while they last, on-demand ones when they must be.

``spot-wait``, ``safety-net`` and ``uniform-progress`` are those of "Can't Be Late" (Wu et al., NSDI 2024), decided
once a tick; a revocation is noticed at once.
``multi-region`` follows SkyNomad (arXiv, 2026): it learns by probing where machines are and how long they live. All
count work in seconds on the on-demand offer, its checkpoints included.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from stash.core import parsers
from stash.core.errors import UnitError, UserError
from stash.market.decisions import JobState, MoveTo, OfferBoard, Policy, PolicyAnswer, ProbeOffers, Stay, Wait
from stash.market.market_trace import HOUR
from stash.predict.draws import Integers

TICK = 600.0
_SAME = 1e-9
_IDLE, _SPOT, _ON_DEMAND = "idle", "spot", "on-demand"
TEXTS = {
    "spot-wait": "spot alone, and waiting without",
    "safety-net": "spot, and waiting without; on demand from the last moment on",
    "uniform-progress": "as much done as time has passed: on demand once behind, spot when ahead",
    "multi-region": "spot where probing finds it cheapest for as long as it lives; on demand if that is too little",
}


@dataclass(frozen=True)
class _Course:
    """The job in seconds of wall time on the on-demand offer."""

    work: float
    """All of it."""
    deadline: float
    """From the start; infinite without one."""
    interval: float
    """Between checkpoints, saving included; infinite without any."""
    move: float
    """From asking for machines to working on them."""
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
        return self.deadline - self.elapsed


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
        state.samples / rate,
        deadline,
        job.interval + job.save_seconds,
        change,
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
    """One tick of a policy; memory: whether on-demand machines are held to the end."""
    course = _course(state, board, name)
    mode = _mode(state, board)
    best = board.best(course.spots)
    there = mode == _SPOT or best >= 0
    gap = min(tick, max(course.rest, 1.0))
    wanted, last = _next_hold(name, course, gap, mode, there, bool(final))
    until = now + tick
    if wanted == _ON_DEMAND:
        return _hold(state, course.fixed, until), last
    if wanted == _SPOT:
        return (Stay(until, changes=False) if mode == _SPOT else MoveTo(best, until, changes=False)), last
    return Wait(until, changes=False), last


def _next_hold(name: str, course: _Course, gap: float, mode: str, there: bool, final: bool) -> tuple[str, bool]:
    """(what is held in this tick, whether that is on-demand to the end).

    The last moment of an idle job is R < C + 2 · d; it decides again a tick later only, so without spot machines
    R − gap counts.
    """
    spot_or_idle = _SPOT if there else _IDLE
    if name == "spot-wait":
        return spot_or_idle, final
    safe = _is_safe_on_spot(course, gap, mode == _SPOT)
    last = (course.rest if there else course.rest - gap) < course.left + 2 * course.move
    final = final or (last and mode == _IDLE) or (there and not safe and mode != _ON_DEMAND)
    if final:
        return _ON_DEMAND, final
    if name == "safety-net":
        return spot_or_idle, final
    pace, done = course.work / course.deadline, course.work - course.left
    ahead = done >= (course.elapsed + 2 * course.move) * pace
    behind = mode == _IDLE and not there and done < course.elapsed * pace
    stays = mode == _ON_DEMAND and not (there and ahead and safe)
    return _ON_DEMAND if stays or behind else spot_or_idle, final


def _is_safe_on_spot(course: _Course, gap: float, held: bool) -> bool:
    """Whether on-demand machines would be in time if spot ones were held in this tick and revoked at its end."""
    change, fresh = (course.change, course.fresh) if held else (course.move, 0.0)
    worked, needed = max(min(gap, course.rest) - change, 0.0), course.kept - fresh
    if worked >= needed - _SAME:
        return True
    interval = min(course.interval, 2 * course.work + 1)
    lost = course.kept - math.floor((fresh + worked) / interval + _SAME) * interval
    return lost <= 0 or course.rest - gap >= lost + course.move - _SAME * course.deadline


def _mode(state: JobState, board: OfferBoard) -> str:
    if state.offer is None:
        return _IDLE
    return _SPOT if board.offers[state.offer].kind == "spot" else _ON_DEMAND


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
    change = course.move
    lost = min(course.interval, course.kept) if mode == _SPOT else 0.0
    if seen.final or course.rest < course.left + 2 * change + tick + lost:
        return _hold(state, course.fixed, until), replace(seen, final=True, held=None)
    costs = {int(offer): _useful_cost(board, seen, int(offer)) for offer in course.spots}
    order = sorted((offer for offer in costs if math.isfinite(costs[offer])), key=lambda each: (costs[each], each))
    found = next((offer for offer in order if state.probed.get(offer)), None)
    if found is not None:
        return MoveTo(found, until, changes=False), replace(seen, held=found, since=now)
    worthwhile = [o for o in order if costs[o] < float(board.costs[course.fixed]) and o not in state.probed]
    if mode == _SPOT:
        assert state.offer is not None
        worthwhile = [offer for offer in worthwhile if _pays(board, state, costs, state.offer, offer)]
    if worthwhile:
        return ProbeOffers((worthwhile[0],)), seen
    if mode == _SPOT:
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
