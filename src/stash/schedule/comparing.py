"""What the commands compute: several policies on the same jobs, and a cluster's economics with its alternatives.

Calls what is pure in an order, and keeps nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from stash.core.intervals import Interval
from stash.schedule.allocation import POLICIES, JobPolicy
from stash.schedule.economics import CloudBurst, CloudPrice, Economics, burst, equilibrium
from stash.schedule.jobs_file import JobsFile
from stash.schedule.matrix import RESTART, RateMatrix, demand_of
from stash.schedule.metrics import ScheduleBounds, ScheduleFigures, bounds, figures, over_seeds
from stash.schedule.records import HOUR, ClusterNode, LabCluster, QueuedJob
from stash.schedule.shares import relaxation
from stash.schedule.simulate import ScheduleCourse, simulate


@dataclass(frozen=True)
class PolicyComparison:
    """Figures of each policy, of one run or several."""

    cluster: LabCluster
    jobs: int
    policies: Mapping[str, JobPolicy]
    round_seconds: float
    seed: int
    restart: tuple[float, float]
    """Seconds, of the least and the most of the jobs' models."""
    runs: Mapping[str, tuple[ScheduleFigures, ...]]
    bounds: ScheduleBounds
    excluded: tuple[tuple[str, str], ...]
    relaxed: float
    """By what factor deadlines of the jobs that are there at first have to be stretched; 1 if they can be kept."""

    def mean(self, policy: str, of: Callable[[ScheduleFigures], float]) -> Interval:
        """Of a figure over the runs."""
        return over_seeds(self.runs[policy], of)


def compared(
    read: JobsFile,
    cluster: LabCluster,
    matrix: RateMatrix,
    policies: Sequence[JobPolicy],
    round_seconds: float,
    seed: int,
    runs: int,
) -> PolicyComparison:
    """Every policy on the same jobs, with the same seeds; raises UserError for jobs that a policy cannot take."""
    found: dict[str, tuple[ScheduleFigures, ...]] = {}
    for policy in policies:
        seeds = range(seed, seed + (runs if policy.seeded else 1))  # else all runs are the same
        courses = [simulate(read.jobs, cluster, matrix, policy, round_seconds, each) for each in seeds]
        found[policy.name] = tuple(figures(course, cluster, matrix) for course in courses)
    models = {job.model for job in read.jobs}
    restarts = [matrix.restart.get(model, RESTART) for model in models]
    there = [job for job in read.jobs if job.submit <= 0]
    return PolicyComparison(
        cluster=cluster, jobs=len(read.jobs), policies={each.name: each for each in policies},
        round_seconds=round_seconds, seed=seed, restart=(min(restarts), max(restarts)), runs=found,
        bounds=bounds(read.jobs, cluster, matrix), excluded=read.excluded,
        relaxed=relaxation(demand_of(there, cluster, matrix)) if there else 1.0,
    )  # fmt: skip


@dataclass(frozen=True)
class MoreNodes:
    """One more machine of a type."""

    gpu: str
    gpus: int
    hourly: float | None
    """Dollars; ``None`` where its type has no price."""
    mean_jct: float
    """Hours."""
    waiting_hours: float
    """Of all jobs together."""


@dataclass(frozen=True)
class ClusterWorth:
    """A cluster's economics, and what else could be done."""

    cluster: LabCluster
    policy: str
    cloud: CloudPrice
    waiting_dollars: float
    defect_at: float
    found: Economics
    mean_jct: float
    waiting_hours: float
    more: tuple[MoreNodes, ...]
    cloud_burst: CloudBurst


def worth(
    jobs: Sequence[QueuedJob], cluster: LabCluster, matrix: RateMatrix, policy: str,
    cloud: CloudPrice, waiting_dollars: float, defect_at: float,
) -> ClusterWorth:  # fmt: skip
    """Who stays at these prices, and what one more machine of each type or cloud bursts would do."""
    queued = partial(simulate, cluster=cluster, matrix=matrix, policy=POLICIES[policy])
    assert cluster.costs.hourly is not None
    found = equilibrium(jobs, cluster.gpus, cluster.costs.hourly, cloud, matrix, queued, waiting_dollars, defect_at)
    course = queued(jobs)
    more, staff = [], cluster.costs.staff_hourly / cluster.gpus  # whom one more machine does not cost
    for kind in cluster.types:
        like = next(node for node in cluster.nodes if node.gpu == kind)
        larger = replace(cluster, nodes=(*cluster.nodes, ClusterNode(f"{kind} more", kind, like.gpus, like.cores)))
        then = simulate(jobs, larger, matrix, POLICIES[policy])
        price = cluster.costs.by_type.get(kind)
        more.append(MoreNodes(kind, like.gpus, None if price is None else (price - staff) * like.gpus, *_means(then)))
    mean_jct, waiting = _means(course)
    return ClusterWorth(cluster, policy, cloud, waiting_dollars, defect_at, found, mean_jct, waiting, tuple(more),
                        burst(jobs, course, matrix, cloud, defect_at, queued))  # fmt: skip


def _means(course: ScheduleCourse) -> tuple[float, float]:
    jct = course.finish - course.submit
    return float(jct.mean()) / HOUR, float((jct - course.held).sum()) / HOUR
