"""What the commands compute: several policies on the same jobs, and a cluster's economics with its alternatives.

Calls what is pure in an order, and keeps nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stash.schedule.allocation import JobPolicy
from stash.schedule.jobs_file import JobsFile
from stash.schedule.matrix import RESTART, RateMatrix, demand_of
from stash.schedule.metrics import ScheduleBounds, ScheduleFigures, bounds, figures
from stash.schedule.records import LabCluster
from stash.schedule.shares import relaxation
from stash.schedule.simulate import simulate


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
    relaxed: float
    """By what factor deadlines of the jobs that are there at first have to be stretched; 1 if they can be kept."""


def compared(
    read: JobsFile, cluster: LabCluster, matrix: RateMatrix, policies: Sequence[JobPolicy], seed: int
) -> PolicyComparison:
    """Every policy on the same jobs; raises UserError for jobs that a policy cannot take."""
    courses = [simulate(read.jobs, cluster, matrix, policy, seed=seed) for policy in policies]
    restarts = [matrix.restart.get(job.model, RESTART) for job in read.jobs]
    there = [job for job in read.jobs if job.submit <= 0]
    return PolicyComparison(
        cluster=cluster,
        jobs=len(read.jobs),
        policies={each.name: each for each in policies},
        seed=seed,
        restart=(min(restarts), max(restarts)),
        figures={course.policy: figures(course, cluster, matrix) for course in courses},
        bounds=bounds(read.jobs, cluster, matrix),
        excluded=read.excluded,
        relaxed=relaxation(demand_of(there, cluster, matrix)) if there else 1.0,
    )
