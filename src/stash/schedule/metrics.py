"""What a course of jobs means: completion times, queueing, fairness, busy and lost GPU-seconds, dollars, and bounds.

    JCT       finish − submission
    queued    the part of it without GPUs
    ρ         JCT ÷ time alone on 1/m of the cluster, m the jobs in the system in the mean over its life (Themis)
    busy      productive GPU-seconds ÷ all GPU-seconds until the last job ends; productive is work at the packed rate
    lost      GPU-seconds by cause; with the productive ones they add up to all
Reads courses; to compare policies it has them simulated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stash.schedule.allocation import JobPolicy
from stash.schedule.lab_files import JobsFile
from stash.schedule.matrix import RESTART, RateMatrix, RateTable, demand_of
from stash.schedule.records import HOUR, Floats, LabCluster, QueuedJob
from stash.schedule.shares import makespan, relaxation
from stash.schedule.simulate import CAUSES, ScheduleCourse, simulate

_SUFFIXES = 12
"""Arrivals from which a bound of the makespan is tried."""


@dataclass(frozen=True)
class ScheduleFigures:
    """The figures of one policy."""

    policy: str
    jobs: int
    jct_mean_seconds: float
    jct_p99_seconds: float
    queued_mean_seconds: float
    rho_mean: float
    rho_worst: float
    unfair: float
    """Share of jobs with ρ > 1."""
    makespan_seconds: float
    busy: float
    gpu_seconds: float
    """Of all GPUs until the last job ends."""
    productive: float
    """GPU-seconds."""
    lost: Mapping[str, float]
    """GPU-seconds by cause."""
    dollars_per_job: float | None
    """Of GPU time held, at each type's price; ``None`` where a type has none."""
    late: int | None
    """Jobs that missed their deadlines; ``None`` if no job has one."""
    restarts: int
    objective: float
    """Of the policy's first allocation; NaN where it has none."""
    unplaced: int


def figures(course: ScheduleCourse, cluster: LabCluster, matrix: RateMatrix) -> ScheduleFigures:
    """The figures of a course."""
    jct = course.finish - course.submit
    rho = finish_time_ratios(course, cluster, matrix)
    gpu_seconds = float(cluster.gpus) * course.end
    deadlines = np.array(
        [math.inf if job.deadline is None else job.deadline for job in course.jobs]
    )
    dollars = None
    if all(kind in cluster.costs.by_type for kind in cluster.types):
        dollars = float((course.served @ cluster.cost_per_gpu()).sum() / HOUR / len(course.jobs))
    return ScheduleFigures(
        policy=course.policy,
        jobs=len(course.jobs),
        jct_mean_seconds=float(jct.mean()),
        jct_p99_seconds=float(np.percentile(jct, 99)),
        queued_mean_seconds=float((jct - course.held).mean()),
        rho_mean=float(rho.mean()),
        rho_worst=float(rho.max()),
        unfair=float((rho > 1).mean()),
        makespan_seconds=course.end,
        busy=float(course.productive.sum()) / gpu_seconds,
        gpu_seconds=gpu_seconds,
        productive=float(course.productive.sum()),
        lost={cause: float(course.lost[cause].sum()) for cause in CAUSES},
        dollars_per_job=dollars,
        late=int((course.finish > deadlines).sum()) if np.isfinite(deadlines).any() else None,
        restarts=int(course.restarts.sum()),
        objective=course.objective,
        unplaced=course.unplaced,
    )


def finish_time_ratios(course: ScheduleCourse, cluster: LabCluster, matrix: RateMatrix) -> Floats:
    """ρ of every job."""
    moments = np.concatenate([course.submit, course.finish])
    steps = np.concatenate([np.ones(len(course.submit)), -np.ones(len(course.finish))])
    order = np.argsort(moments, kind="stable")
    times = moments[order]
    there = np.cumsum(steps[order])
    area = np.concatenate([[0.0], np.cumsum(there[:-1] * np.diff(times))])

    def jobs_until(at: Floats) -> Floats:
        where = np.clip(np.searchsorted(times, at, side="right") - 1, 0, len(times) - 1)
        return np.asarray(area[where] + there[where] * (at - times[where]), dtype=float)

    jct = course.finish - course.submit
    mean_jobs = (jobs_until(course.finish) - jobs_until(course.submit)) / np.maximum(jct, 1e-12)
    table = RateTable(course.jobs, cluster, matrix)
    gpus = np.array([job.gpus for job in course.jobs])
    share = cluster.counts[None, :] / (np.maximum(mean_jobs, 1.0)[:, None] * gpus[:, None])
    share = share / np.maximum(share.sum(axis=1, keepdims=True), 1.0)
    alone = np.array([job.steps - job.done for job in course.jobs]) / (table.packed * share).sum(
        axis=1
    )
    return np.asarray(jct / alone, dtype=float)


@dataclass(frozen=True)
class ScheduleBounds:
    """What no schedule can beat, and how much is asked of the cluster."""

    makespan_seconds: float
    load: float | None
    """Work that comes in per hour over the most that can be done; ``None`` where all come at once."""


def bounds(jobs: Sequence[QueuedJob], cluster: LabCluster, matrix: RateMatrix) -> ScheduleBounds:
    """Bounds at packed rates and free moves.

    The makespan is at least what the fluid program needs for all jobs, and for those that come later than any moment
    that moment more; and no job ends before it could, alone on its fastest type.
    """
    ordered = sorted(jobs, key=lambda job: job.submit)
    table = RateTable(ordered, cluster, matrix)
    alone = np.array([job.steps - job.done for job in ordered]) / table.packed.max(axis=1)
    submits = np.array([job.submit for job in ordered])
    bound = float((submits + alone).max())
    span = float(submits.max() - submits.min())
    whole = 0.0
    starts = {int(each) for each in np.linspace(0, len(ordered) - 1, _SUFFIXES if span else 1)}
    for at in sorted(starts):
        rest = [replace(job, submit=0.0) for job in ordered[at:]]
        least = makespan(demand_of(rest, cluster, matrix)).objective
        whole = whole or least
        bound = max(bound, float(submits[at]) + least)
    load = whole / span if span else None
    return ScheduleBounds(bound, load)


@dataclass(frozen=True)
class PolicyComparison:
    """Figures of each policy."""

    cluster: LabCluster
    jobs: int
    policies: Mapping[str, JobPolicy]
    restart: tuple[float, float]
    """Seconds, of the least and the most of the jobs' models."""
    figures: Mapping[str, ScheduleFigures]
    bounds: ScheduleBounds
    excluded: tuple[tuple[str, str], ...]
    unrated: Mapping[str, int]
    """GPUs of each type on which no job has a rate: they stand idle."""
    relaxed: float
    """By what factor deadlines of the jobs that are there at first have to be stretched; 1 if they can be kept."""


def compare_policies(
    read: JobsFile,
    cluster: LabCluster,
    matrix: RateMatrix,
    policies: Sequence[JobPolicy],
) -> PolicyComparison:
    """Every policy on the same jobs; raises UserError for jobs that it cannot take."""
    rated = np.asarray(RateTable(read.jobs, cluster, matrix).packed.max(axis=0) > 0).tolist()
    restarts = [matrix.restart.get(job.model, RESTART) for job in read.jobs]
    there = [job for job in read.jobs if job.submit <= 0]
    return PolicyComparison(
        cluster=cluster,
        jobs=len(read.jobs),
        policies={each.name: each for each in policies},
        restart=(min(restarts), max(restarts)),
        figures={
            each.name: figures(simulate(read.jobs, cluster, matrix, each), cluster, matrix)
            for each in policies
        },
        bounds=bounds(read.jobs, cluster, matrix),
        excluded=read.excluded,
        unrated={
            kind: int(count)
            for kind, count, runs in zip(cluster.types, cluster.counts, rated, strict=True)
            if not runs
        },
        relaxed=relaxation(demand_of(there, cluster, matrix)) if there else 1.0,
    )
