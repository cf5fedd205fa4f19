"""Policies by name, queues, and rounds: how shares of time are decided, and who runs next by them.

A policy is a pure function ``allocate(demand) -> ShareAllocation`` and some facts about it; those that solve a linear
program are in ``shares``. A queue's ``x[j, t]`` is 1 for a job and the type that it runs on. Rounds follow Gavel: the
largest share over time received so far comes first. Which nodes a job gets, ``placement`` knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stash.schedule import shares
from stash.schedule.records import Floats, JobDemand, ShareAllocation, WholeNumbers

# Queues


def fifo_aware(demand: JobDemand) -> ShareAllocation:
    """First come, first served, each on the fastest type with enough free GPUs; all are placed again each time."""
    order = np.arange(len(demand))
    return ShareAllocation(_greedy(demand, order, backfill=False), float("nan"), order=order)


def shortest_remaining(demand: JobDemand) -> ShareAllocation:
    """Shortest remaining time on its fastest type first, each on the fastest type that is free, with preemption."""
    order = np.argsort(demand.left / demand.best, kind="stable")
    return ShareAllocation(_greedy(demand, order, backfill=True), float("nan"), order=order)


def _greedy(demand: JobDemand, order: WholeNumbers, backfill: bool) -> Floats:
    """Each job in turn on its fastest type with enough free GPUs."""
    x = np.zeros(demand.rates.shape)
    free = demand.counts.copy()
    for job in order:
        rates = np.where(free >= demand.gpus[job], demand.rates[job], 0.0)
        kind = int(rates.argmax())
        if rates[kind] > 0:
            x[job, kind] = 1.0
            free[kind] -= demand.gpus[job]
        elif not backfill and free.max() < demand.gpus[job]:
            break
    return x


# Policies


@dataclass(frozen=True)
class JobPolicy:
    """One policy."""

    name: str
    rule: Callable[[JobDemand], ShareAllocation]
    text: str
    """What it does, in a few words."""
    fills: bool = True
    """Whether GPUs that its shares leave free go to jobs that wait; a queue does its own filling."""
    by_work: bool = False
    """Whether it looks at what jobs have left, so that its shares change with every step."""
    objective: str = ""
    """What its objective is, with its unit."""
    gain: str = ""
    """What one more GPU brings, in words and unit; empty where it is the objective's."""
    backfills: bool = True
    """Whether jobs may start before one that does not fit."""


_LEVEL = "times its equal share for the worst-off job"
_T = "seconds until all are finished"
_SOONER = "seconds less until all are finished"
POLICIES: Mapping[str, JobPolicy] = {
    each.name: each
    for each in (
        JobPolicy(
            "max-min",
            shares.max_min,
            "equal progress, measured in each job's equal share",
            objective=_LEVEL,
        ),
        JobPolicy(
            "makespan",
            shares.makespan,
            "all finished as early as possible",
            by_work=True,
            objective=_T,
            gain=_SOONER,
        ),
        JobPolicy(
            "cost",
            shares.cheapest,
            "most work per dollar, deadlines kept",
            by_work=True,
            objective="seconds of work, each on its fastest type, per dollar an hour",
            gain="seconds of work a second",
        ),
        JobPolicy(
            "fifo-aware",
            fifo_aware,
            "first come first served, each on the fastest free type, no backfill",
            by_work=True,
            fills=False,
            backfills=False,
        ),
        JobPolicy(
            "srtf", shortest_remaining, "shortest remaining time first", fills=False, by_work=True
        ),
    )
}


def max_min() -> JobPolicy:
    """``POLICIES["max-min"]``, as Python code likes to say it."""
    return POLICIES["max-min"]


# Rounds


def priorities(x: Floats, received: Floats, round_seconds: float) -> Floats:
    """x[j, t] over the time received there since the shares changed, half a round for none (Gavel, section 5)."""
    return np.asarray(x / (received + round_seconds / 2), dtype=float)


def order_turns(priority: Floats, allowed: NDArray[np.bool_], tie: Floats) -> WholeNumbers:
    """Entries j·T + t, highest priority first, ties by ``tie``; those not ``allowed`` left out."""
    entries = np.flatnonzero(allowed)
    return np.asarray(
        entries[np.lexsort((-tie.take(entries), -priority.take(entries)))], dtype=np.int64
    )


def choose_types(order: WholeNumbers, gpus: WholeNumbers, counts: Sequence[int]) -> dict[int, int]:
    """The type of each job that runs: entries in turn, one type a job, while the gang fits what is left."""
    left = list(counts)
    found: dict[int, int] = {}
    for job, kind in zip(*np.divmod(order, len(left)), strict=True):
        if gpus[job] <= left[kind] and int(job) not in found:
            found[int(job)] = int(kind)
            left[kind] -= int(gpus[job])
    return found
