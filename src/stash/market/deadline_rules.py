"""Policies that have to be in time: spot machines while they last, on-demand ones when they must be.

``spot-wait`` and ``uniform-progress`` are those of "Can't Be Late" (Wu et al., NSDI 2024), decided by the spot
planner's own functions; a tick here is as long as they say, and a revocation is noticed at once. Both count work in
seconds on the on-demand offer, its checkpoints included.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from stash.core import parsers
from stash.core.errors import UnitError, UserError
from stash.market.decisions import JobState, MoveTo, OfferBoard, Policy, PolicyAnswer, Stay, Wait
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
_PLANNERS: Mapping[str, PolicyName] = {"spot-wait": "spot", "uniform-progress": "uniform"}
TEXTS = {
    "spot-wait": "spot alone, and waiting without",
    "uniform-progress": "as much done as time has passed: on demand once behind, spot when ahead",
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


def deadline_policy(name: str, option: str = "") -> Policy:
    """The policy of that name; ``option`` is its tick, like ``tick=5m``. Raises UserError."""
    tick = TICK
    if option:
        try:
            tick = parsers.duration(option.removeprefix("tick="))
        except UnitError as error:
            raise UserError(f"--policy {name}:{option}: {error}; a tick is a time, like tick=10m") from error
    called = f"{name}:{option}" if option else name
    return Policy(called, partial(_planner, name=name, tick=tick), None, TEXTS[name])
