"""Policies that serve a queue: FIFO, shortest remaining time, and AlloX.

Each is a pure function to ``x[j, t]``, here 1 for a job and the type that it runs on and 0 otherwise. They decide by
free GPUs of a type alone; which nodes, ``placement`` knows.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from stash.core.errors import UserError
from stash.schedule.records import Floats, JobDemand, ShareAllocation, WholeNumbers


def fifo(demand: JobDemand, seed: int = 0) -> ShareAllocation:
    """First come, first served, without knowledge of types, preemption or backfill: as YARN's capacity scheduler.

    The type is drawn among those with enough free GPUs on which the job runs at all. The first job that finds none
    stops the queue.
    """
    x, free = _holding(demand)
    for job in np.flatnonzero(demand.running < 0):
        possible = np.flatnonzero((free >= demand.gpus[job]) & (demand.rates[job] > 0))
        if not len(possible):
            break
        draw = np.random.default_rng((seed, int(demand.ids[job]), len(possible)))
        _take(x, free, demand, int(job), int(possible[draw.integers(len(possible))]))
    return ShareAllocation(x, float("nan"), order=np.arange(len(demand)))


def fifo_aware(demand: JobDemand) -> ShareAllocation:
    """First come, first served, each on the fastest type with enough free GPUs; all are placed again each time."""
    order = np.arange(len(demand))
    return ShareAllocation(_greedy(demand, order, backfill=False), float("nan"), order=order)


def shortest_remaining(demand: JobDemand) -> ShareAllocation:
    """Shortest remaining time on its fastest type first, each on the fastest type that is free, with preemption."""
    order = np.argsort(demand.left / demand.best, kind="stable")
    return ShareAllocation(_greedy(demand, order, backfill=True), float("nan"), order=order)


def allox(demand: JobDemand) -> ShareAllocation:
    """Least mean completion time of waiting jobs on free GPUs (AlloX, EuroSys 2020), without preemption.

    A job that is k-th from the last on its GPU delays k completions by its time there, so a matching of jobs to
    (GPU, k) of least Σ k·time is optimal. Positions are added until the last one of no GPU is used, where its
    dual value is zero and no further position can help. Raises UserError for jobs of several GPUs.
    """
    if (demand.gpus > 1).any():
        several = int((demand.gpus > 1).sum())
        raise UserError(f"allox matches jobs of one GPU, and {several} here have more; choose another policy")
    x, free = _holding(demand)
    waiting = np.flatnonzero(demand.running < 0)
    # More GPUs of a type than jobs that wait are of no use.
    slots = np.repeat(np.arange(len(free)), np.clip(free, 0, len(waiting)))
    if not len(waiting) or not len(slots):
        return ShareAllocation(x, float("nan"))
    with np.errstate(divide="ignore"):
        seconds = np.minimum(demand.left[waiting, None] / demand.rates[waiting][:, slots], 1e12)
    positions = min(len(waiting), -(-len(waiting) // len(slots)) + 2)
    while True:
        cost = (seconds[:, :, None] * np.arange(1, positions + 1)).reshape(len(waiting), -1)
        rows, columns = linear_sum_assignment(cost)
        if positions >= len(waiting) or (columns % positions).max() + 1 < positions:
            break
        positions = min(len(waiting), 2 * positions)
    first: dict[int, tuple[int, int]] = {}
    for row, column in zip(rows, columns, strict=True):
        slot, position = divmod(int(column), positions)
        if cost[row, column] < 1e12 and (slot not in first or position > first[slot][0]):
            first[slot] = (position, int(waiting[row]))
    for slot, (_, job) in first.items():
        x[job, slots[slot]] = 1.0
    return ShareAllocation(x, float("nan"))


def _holding(demand: JobDemand) -> tuple[Floats, WholeNumbers]:
    """What is running keeps its type: x, and the GPUs that are left."""
    x, runs = np.zeros(demand.rates.shape), np.flatnonzero(demand.running >= 0)
    x[runs, demand.running[runs]] = 1.0
    return x, demand.counts - (x.T @ demand.gpus).astype(np.int64)


def _take(x: Floats, free: WholeNumbers, demand: JobDemand, job: int, kind: int) -> None:
    x[job, kind] = 1.0
    free[kind] -= demand.gpus[job]


def _greedy(demand: JobDemand, order: WholeNumbers, backfill: bool) -> Floats:
    """Each job in turn on its fastest type with enough free GPUs."""
    x = np.zeros(demand.rates.shape)
    rates, free = demand.rates.T.tolist(), demand.counts.tolist()  # numpy's scalars would take three times as long
    smallest = int(demand.gpus.min(initial=1))
    for job, size in zip(order.tolist(), demand.gpus[order].tolist(), strict=True):
        fastest, kind = 0.0, -1
        for each, left in enumerate(free):
            if left >= size and rates[each][job] > fastest:
                fastest, kind = rates[each][job], each
        if kind >= 0:
            x[job, kind] = 1.0
            free[kind] -= size
            if max(free) < smallest:
                break
        elif not backfill and max(free) < size:
            break
    return x
