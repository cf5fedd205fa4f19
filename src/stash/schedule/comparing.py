"""What the commands compute: several policies on the same jobs, and a cluster's economics with its alternatives.

Calls what is pure in an order, and keeps nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stash.schedule.allocation import JobPolicy
from stash.schedule.jobs_file import JobsFile
from stash.schedule.matrix import RESTART, RateMatrix, RateTable, demand_of
from stash.schedule.metrics import ScheduleBounds, ScheduleFigures, bounds, figures, mean_figures
from stash.schedule.records import LabCluster
from stash.schedule.shares import relaxation
from stash.schedule.simulate import simulate

DRAWN = 10
"""Runs of a policy that draws."""


@dataclass(frozen=True)
class PolicyComparison:
    """Figures of each policy."""

    cluster: LabCluster
    jobs: int
    policies: Mapping[str, JobPolicy]
    seed: int
    restart: tuple[float, float]
    """Seconds, of the least and the most of the jobs' models."""
    figures: Mapping[str, ScheduleFigures]
    bounds: ScheduleBounds
    excluded: tuple[tuple[str, str], ...]
    unrated: Mapping[str, int]
    """GPUs of each type on which no job has a rate: they stand idle."""
    spread: Mapping[str, float]
    """Standard deviation of the mean completion time over ``DRAWN`` runs, in seconds, of policies that draw."""
    relaxed: float
    """By what factor deadlines of the jobs that are there at first have to be stretched; 1 if they can be kept."""


def compare_policies(
    read: JobsFile,
    cluster: LabCluster,
    matrix: RateMatrix,
    policies: Sequence[JobPolicy],
    seed: int = 17,
) -> PolicyComparison:
    """Every policy on the same jobs, ``DRAWN`` times if it draws; raises UserError for jobs that it cannot take."""
    found, spread = {}, {}
    for policy in policies:
        seeds = range(seed, seed + DRAWN) if policy.seeded else (seed,)
        courses = (simulate(read.jobs, cluster, matrix, policy, seed=each) for each in seeds)
        runs = [figures(course, cluster, matrix) for course in courses]
        found[policy.name] = mean_figures(runs)
        if len(runs) > 1:
            spread[policy.name] = float(np.std([each.jct_mean_seconds for each in runs], ddof=1))
    rated = np.asarray(RateTable(read.jobs, cluster, matrix).packed.max(axis=0) > 0).tolist()
    restarts = [matrix.restart.get(job.model, RESTART) for job in read.jobs]
    there = [job for job in read.jobs if job.submit <= 0]
    return PolicyComparison(
        cluster=cluster,
        jobs=len(read.jobs),
        policies={each.name: each for each in policies},
        seed=seed,
        restart=(min(restarts), max(restarts)),
        figures=found,
        bounds=bounds(read.jobs, cluster, matrix),
        excluded=read.excluded,
        unrated={
            kind: int(count)
            for kind, count, runs in zip(cluster.types, cluster.counts, rated, strict=True)
            if not runs
        },
        spread=spread,
        relaxed=relaxation(demand_of(there, cluster, matrix)) if there else 1.0,
    )
