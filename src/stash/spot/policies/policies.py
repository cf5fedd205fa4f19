"""When to hold spot machines and when on-demand ones, so that a job is in time: policies played against a record.

After "Can't Be Late" (Wu et al., NSDI 2024). A gang holds all its machines or none; a change-over d, in whichever
direction, is paid and brings nothing. Time goes in ticks of the record of what was obtainable, and all runs of all
policies begin at the same ones (common random numbers). A revocation destroys work since the last checkpoint, which
the paper has in d: here no policy holds spot machines through a tick after which on-demand ones could be late. A run
ends when its work is done, or at the deadline, late.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from stash.predict.draws import Array

PolicyName = Literal["greedy", "uniform", "on-demand", "spot"]
POLICIES: dict[PolicyName, str] = {
    "greedy": "spot, and idle without; on-demand to the end once that is the last moment",
    "uniform": "as much done as time has passed: on-demand once behind, left only for spot when ahead",
    "on-demand": "on-demand from the start",
    "spot": "spot alone, whatever it takes",
}
IDLE, SPOT, ON_DEMAND = 0, 1, 2
_SAME = 1e-9
Bools = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int_]


@dataclass(frozen=True)
class SyncJob:
    """What is to be done by when, and what on-demand machines cost."""

    work_seconds: float
    """C(0)."""
    deadline_seconds: float
    """R(0)."""
    change_seconds: float
    """d: from asking for machines to working on them."""
    on_demand_dollars: float
    """Of the whole gang, an hour."""
    interval_seconds: float = math.inf
    """Of work between two checkpoints, on spot machines; on-demand ones are not revoked and write none."""
    write_seconds: float = 0.0
    """Of a checkpoint."""
    keeps: bool = True
    """Whether a revocation destroys nothing: servers hold the parameters, or a checkpoint fits the notice."""

    @property
    def stretch(self) -> float:
        """The interval, finite: one that is never reached is as good as any such."""
        return min(self.interval_seconds, 2 * self.work_seconds + 1)


@dataclass(frozen=True, eq=False)
class SpotMarket:
    """A record of what the gang could have had: [tick] each."""

    gap_seconds: float
    there: Bools
    """Whether all of its machines could be had."""
    dollars: Array
    """What they cost an hour, all together."""


@dataclass(frozen=True, eq=False)
class Played:
    """What each run came to: [run]."""

    dollars: Array
    on_demand_hours: Array
    late: Bools
    revocations: Array


@dataclass(frozen=True, eq=False)
class PolicyTick:
    """All runs in one tick: [run] each."""

    mode: Integers
    """What is held: IDLE, SPOT or ON_DEMAND."""
    held_seconds: Array
    dollars: Array
    """Paid in it."""
    revoked: Bools
    """At its beginning."""
    left: Array
    """Seconds of work that are left after it."""


def ticks(job: SyncJob, gap: float) -> int:
    """The number of ticks of a whole run."""
    return max(math.ceil(job.deadline_seconds / gap - _SAME), 1)


def play(policy: PolicyName, job: SyncJob, market: SpotMarket, starts: Integers) -> Played:
    """Run ``policy`` from each of ``starts``, ticks of ``market``, which has a whole run after each."""
    dollars, hours, revocations = np.zeros((3, len(starts)))
    left = np.full(len(starts), job.work_seconds)
    for tick in course(policy, job, market, starts):
        dollars += tick.dollars
        hours += np.where(tick.mode == ON_DEMAND, tick.held_seconds, 0.0) / 3600
        revocations += tick.revoked
        left = tick.left
    return Played(dollars, hours, left > job.work_seconds * _SAME, revocations)


def course(policy: PolicyName, job: SyncJob, market: SpotMarket, starts: Integers) -> Iterator[PolicyTick]:
    """Every tick of these runs, in order."""
    gap, count = market.gap_seconds, len(starts)
    mode, final = np.full(count, IDLE), np.zeros(count, dtype=bool)
    kept = np.full(count, job.work_seconds)  # what is left of work, were the gang revoked now
    fresh, change = np.zeros(count), np.zeros(count)  # seconds since the last checkpoint; seconds of a change-over
    for tick in range(ticks(job, gap)):
        now = tick * gap
        there = market.there[starts + tick]
        revoked = (mode == SPOT) & ~there
        left = kept - np.minimum(fresh, job.stretch)
        kept = np.where(revoked & job.keeps, left, kept)
        fresh = np.where(revoked, 0.0, fresh)
        left = kept - np.minimum(fresh, job.stretch)
        mode = np.where(revoked, IDLE, mode)
        safe = safe_on_spot(job, kept, fresh, np.where(mode == SPOT, change, job.change_seconds), now, gap)
        wanted, final = next_hold(policy, job, now, gap, left, mode, there, final, safe)
        wanted = np.where(left <= job.work_seconds * _SAME, IDLE, wanted)
        changes = wanted != mode
        kept, fresh = np.where(changes, left, kept), np.where(changes, 0.0, fresh)  # who leaves has time to save
        change = np.where(changes, job.change_seconds, change)
        mode = wanted
        span = min(gap, job.deadline_seconds - now)
        needed = np.where(mode == SPOT, _wall(job, kept, fresh), left)
        held = np.where(mode == IDLE, 0.0, np.minimum(span, change + needed))
        worked = np.maximum(held - change, 0.0)
        change = np.maximum(change - held, 0.0)
        kept, fresh = _worked(job, mode, kept, fresh, worked, worked >= needed - _SAME)
        price = np.where(mode == SPOT, market.dollars[starts + tick], job.on_demand_dollars)
        yield PolicyTick(mode, held, held * price / 3600, revoked, kept - np.minimum(fresh, job.stretch))


def _wall(job: SyncJob, kept: Array, fresh: Array) -> Array:
    """Seconds on spot machines until all is done: work, and a checkpoint after every interval but the last."""
    checkpoints = np.maximum(np.ceil(kept / job.stretch - _SAME) - 1, 0.0)
    wall: Array = kept + checkpoints * job.write_seconds - fresh
    return wall


def _worked(
    job: SyncJob, mode: Integers, kept: Array, fresh: Array, worked: Array, done: Bools
) -> tuple[Array, Array]:
    """(work left, were the gang revoked; seconds since the last checkpoint) after so many seconds of work."""
    on_demand = mode == ON_DEMAND
    since = fresh + np.where(on_demand, 0.0, worked)
    whole = np.floor(since / (job.stretch + job.write_seconds) + _SAME)
    kept = kept - np.where(on_demand, worked, whole * job.stretch)
    since = np.maximum(since - whole * (job.stretch + job.write_seconds), 0.0)
    ended = done & (mode != IDLE)
    return np.where(ended, 0.0, kept), np.where(ended, 0.0, since)


def safe_on_spot(job: SyncJob, kept: Array, fresh: Array, change: Array, now: float, gap: float) -> Bools:
    """Whether on-demand machines would be in time if spot ones were held in this tick and revoked at its end."""
    rest, spot = job.deadline_seconds - now, np.full(len(kept), SPOT)
    worked = np.maximum(min(gap, rest) - change, 0.0)
    needed = _wall(job, kept, fresh)
    after, since = _worked(job, spot, kept, fresh, np.minimum(worked, needed), worked >= needed - _SAME)
    lost = after - (np.minimum(since, job.stretch) if job.keeps else 0.0)
    safe: Bools = (lost <= 0) | (rest - gap >= lost + job.change_seconds - _SAME * job.deadline_seconds)
    return safe


def next_hold(
    policy: PolicyName,
    job: SyncJob,
    now: float,
    gap: float,
    left: Array,
    mode: Integers,
    there: Bools,
    final: Bools,
    safe: Bools,
) -> tuple[Integers, Bools]:
    """(what each run holds in this tick, whether that is on-demand to the end).

    The last moment of an idle job is R < C + 2 · d; it decides again a tick later only, so without spot machines
    R − gap counts.
    """
    spot_or_idle = np.where(there, SPOT, IDLE)
    if policy == "on-demand":
        return np.full_like(mode, ON_DEMAND), final
    if policy == "spot":
        return spot_or_idle, final
    rest = job.deadline_seconds - now
    last = np.where(there, rest, rest - gap) < left + 2 * job.change_seconds
    final = final | (last & (mode == IDLE)) | (there & ~safe & (mode != ON_DEMAND))
    if policy == "greedy":
        return np.where(final, ON_DEMAND, spot_or_idle), final
    pace, done = job.work_seconds / job.deadline_seconds, job.work_seconds - left
    ahead = done >= (now + 2 * job.change_seconds) * pace
    behind = (mode == IDLE) & ~there & (done < now * pace)
    stays = (mode == ON_DEMAND) & ~(there & ahead & safe)
    return np.where(final | stays | behind, ON_DEMAND, spot_or_idle), final
