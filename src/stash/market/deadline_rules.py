"""Policies that have to be in time: spot machines while they last, on-demand ones when they must be.

``spot-wait`` and ``uniform-progress`` are those of "Can't Be Late" (Wu et al., NSDI 2024), decided once a
tick; a revocation is noticed at once. Both count work in seconds on the on-demand offer, its checkpoints included.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from stash.core.errors import UserError
from stash.market.decisions import JobState, MoveTo, OfferBoard, Policy, PolicyAnswer, Stay, Wait
from stash.predict.draws import Integers

TICK = 600.0
_SAME = 1e-9
_IDLE, _SPOT, _ON_DEMAND = "idle", "spot", "on-demand"
TEXTS = {
    "spot-wait": "spot alone, and waiting without",
    "uniform-progress": "as much done as time has passed: on demand once behind, spot when ahead",
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
    now: float, state: JobState, board: OfferBoard, final: bool | None, name: str
) -> tuple[PolicyAnswer, bool]:
    """One tick of a policy; memory: whether on-demand machines are held to the end."""
    course = _course(state, board, name)
    mode = _mode(state, board)
    best = board.best(course.spots)
    there = mode == _SPOT or best >= 0
    gap = min(TICK, max(course.rest, 1.0))
    wanted, last = _next_hold(name, course, gap, mode, there, bool(final))
    until = now + TICK
    if wanted == _ON_DEMAND:
        stays = state.offer == course.fixed
        return (Stay(until, changes=False) if stays else MoveTo(course.fixed, until, changes=False)), last
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


def deadline_policy(name: str) -> Policy:
    """The policy of that name."""
    return Policy(name, partial(_planner, name=name), None, TEXTS[name])
