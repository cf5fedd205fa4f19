"""When to hold spot machines and when on-demand ones, so that a job is in time: policies played against a record.

After "Can't Be Late" (Wu et al., NSDI 2024). A gang holds all its machines or none; a change-over d is paid and
brings nothing. Time goes in ticks of the record of what was obtainable, and all runs of all policies begin at the
same ones (common random numbers). A run ends when its work is done, or at the deadline, late. Prices stay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix, hstack, identity, vstack

from stash.derive.predict.draws import Array

PolicyName = Literal["greedy", "uniform", "on-demand", "spot", "omniscient"]
POLICIES: dict[PolicyName, str] = {
    "greedy": "spot, and idle without; on-demand to the end once that is the last moment",
    "uniform": "as much done as time has passed: on-demand while behind, spot whenever obtainable",
    "on-demand": "on-demand from the start",
    "spot": "spot alone, whatever it takes",
    "omniscient": "the cheapest that anybody who knew the future could do",
}
_IDLE, _SPOT, _ON_DEMAND = 0, 1, 2
_SAME = 1e-9
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class GangJob:
    """What is to be done by when, and what a second of each kind costs."""

    work_seconds: float
    """C(0)."""
    deadline_seconds: float
    """R(0)."""
    change_seconds: float
    """d: from asking for machines to working on them."""
    spot_dollars: float
    on_demand_dollars: float
    """Of the whole gang, an hour."""


@dataclass(frozen=True)
class Played:
    """What each run cost: [run]."""

    dollars: Array
    on_demand_hours: Array
    late: Bools


def ticks(job: GangJob, gap: float) -> int:
    """Of a whole run."""
    return math.ceil(job.deadline_seconds / gap - _SAME)


def play(policy: PolicyName, job: GangJob, obtainable: Bools, gap: float, starts: npt.NDArray[np.int_]) -> Played:
    """Run ``policy`` from each of ``starts``, ticks of ``obtainable``, which has a whole run after each."""
    windows = obtainable[starts[:, None] + np.arange(ticks(job, gap))[None, :]]
    if policy == "omniscient":
        return _omniscient(job, windows, gap)
    count = len(starts)
    left, mode = np.full(count, job.work_seconds), np.full(count, _IDLE)
    change, final = np.zeros(count), np.zeros(count, dtype=bool)
    dollars, hours = np.zeros(count), np.zeros(count)
    for tick in range(windows.shape[1]):
        now = tick * gap
        there = windows[:, tick]
        mode = np.where((mode == _SPOT) & ~there, _IDLE, mode)
        wanted, final = _wanted(policy, job, now, gap, left, mode, there, final)
        wanted = np.where(left <= _SAME, _IDLE, wanted)
        change = np.where(wanted == mode, change, job.change_seconds)
        mode = wanted
        span = min(gap, job.deadline_seconds - now)
        held = np.where(mode == _IDLE, 0.0, np.minimum(span, change + left))
        left = left - np.maximum(held - change, 0.0)
        change = np.maximum(change - held, 0.0)
        price = np.where(mode == _SPOT, job.spot_dollars, job.on_demand_dollars)
        dollars += held * price / 3600
        hours += np.where(mode == _ON_DEMAND, held, 0.0) / 3600
    return Played(dollars, hours, left > job.work_seconds * _SAME)


def _wanted(
    policy: PolicyName, job: GangJob, now: float, gap: float, left: Array, mode: Array, there: Bools, final: Bools
) -> tuple[Array, Bools]:
    """(what each run holds in this tick, whether that is on-demand to the end).

    The last moment is when a tick later would be too late: R − gap < C + 2 · d.
    """
    spot_or_idle = np.where(there, _SPOT, _IDLE)
    if policy == "on-demand":
        return np.full_like(mode, _ON_DEMAND), final
    if policy == "spot":
        return spot_or_idle, final
    last = (spot_or_idle == _IDLE) & (job.deadline_seconds - now - gap < left + 2 * job.change_seconds)
    final = final | (last & (mode != _ON_DEMAND))
    if policy == "greedy":
        return np.where(final, _ON_DEMAND, spot_or_idle), final
    pace, done = job.work_seconds / job.deadline_seconds, job.work_seconds - left
    ahead = done >= (now + 2 * job.change_seconds) * pace
    behind = (mode == _IDLE) & ~there & (done < now * pace)
    stays = (mode == _ON_DEMAND) & ~ahead
    return np.where(final | stays | behind, _ON_DEMAND, spot_or_idle), final


# What could have been done ----------------------------------------------------------------------------------


def _omniscient(job: GangJob, windows: Bools, gap: float) -> Played:
    """Each run on its own: a mixed-integer program over its ticks; runs alike are solved once."""
    alike, which = np.unique(windows, axis=0, return_inverse=True)
    solved = np.array([_hindsight(job, window, gap) for window in alike])
    dollars, hours, late = solved[which.ravel()].T
    return Played(dollars, hours, late > 0)


def _hindsight(job: GangJob, there: Bools, gap: float) -> tuple[float, float, float]:
    """(dollars, on-demand hours, 1 if nothing is in time): Σ gap · (s + o) − d · (starts) ≥ C, least cost.

    Seconds held in a tick are between 0 and what the tick has, and 0 unless the kind is held (s, o); a start is a
    tick in which a kind is held and was not in the last. Columns: seconds of each kind, held, starts.
    """
    count = len(there)
    spans = np.minimum(gap, job.deadline_seconds - np.arange(count) * gap)
    one, none = identity(count, format="csr"), csr_matrix((count, count))
    before = csr_matrix((np.ones(count - 1), (np.arange(1, count), np.arange(count - 1))), shape=(count, count))
    rows = [
        _side_by_side(one, none, -one.multiply(spans), none, none, none),
        _side_by_side(none, one, none, -one.multiply(spans), none, none),
        _side_by_side(none, none, one - before, none, -one, none),
        _side_by_side(none, none, none, one - before, none, -one),
        _side_by_side(none, none, one, one, none, none),
        csr_matrix(
            np.concatenate([np.ones(2 * count), np.zeros(2 * count), np.full(2 * count, -job.change_seconds)])
        ),
    ]
    high = np.concatenate([np.zeros(4 * count), np.ones(count), [np.inf]])
    low = np.concatenate([np.full(5 * count, -np.inf), [job.work_seconds]])
    prices = np.repeat([job.spot_dollars, job.on_demand_dollars], count) / 3600
    most = np.concatenate([spans, spans, there.astype(float), np.ones(3 * count)])
    found = milp(
        np.concatenate([prices, np.zeros(4 * count)]),
        constraints=LinearConstraint(vstack(rows), low, high),
        integrality=np.concatenate([np.zeros(2 * count), np.ones(2 * count), np.zeros(2 * count)]),
        bounds=Bounds(0, most),
        options={"mip_rel_gap": 1e-4, "time_limit": 5.0},
    )
    if found.x is None:
        return math.nan, math.nan, 1.0
    return float(found.fun), float(found.x[count : 2 * count].sum()) / 3600, 0.0


def _side_by_side(*blocks: csr_matrix) -> csr_matrix:
    return hstack(blocks, format="csr")
