"""Schedules against the figures that Gavel's own simulator printed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.machine import ROOT, arguments
from bench.table import report, table
from stash.schedule.job_policies import POLICIES, JobPolicy
from stash.schedule.jobs_file import read_jobs
from stash.schedule.lab_file import read_cluster
from stash.schedule.matrix import RateMatrix, demand_of
from stash.schedule.matrix_file import read_matrix
from stash.schedule.records import HOUR, LabCluster, QueuedJob
from stash.schedule.run_state import RunSettings, ScheduleCourse
from stash.schedule.shares import makespan
from stash.schedule.simulate import simulate

DATA = ROOT / "examples" / "schedule"
SEEDS = 5
ORIGINALS = (
    ("jobs", "max-min", 3.82), ("jobs", "max-min blind", 5.20), ("jobs", "ftf", 3.94), ("jobs", "fifo", 9.85),
    ("jobs", "fifo-aware", 5.18), ("jobs-at-once", "makespan", 17.40), ("jobs-at-once", "makespan blind", 20.71),
    ("jobs-at-once", "fifo", 70.38),
)  # fmt: skip
"""Trace, policy, and hours that Gavel's simulator printed at c4fa400: mean JCT; of ``jobs-at-once`` the makespan."""
Loaded = tuple[tuple[QueuedJob, ...], LabCluster, RateMatrix]


def load(trace: str) -> Loaded:
    """A trace of Gavel's, its cluster and throughputs."""
    cluster, matrix = read_cluster(DATA / "cluster.yaml"), read_matrix(DATA / "matrix.csv")
    return read_jobs(DATA / f"{trace}.csv", cluster, matrix).jobs, cluster, matrix


def policy_named(name: str) -> JobPolicy:
    """``max-min``, or ``max-min blind``."""
    plain, _, blind = name.partition(" ")
    return POLICIES[plain].blinded() if blind else POLICIES[plain]


def hours(course: ScheduleCourse, trace: str) -> float:
    ends = course.end if trace == "jobs-at-once" else float((course.finish - course.submit).mean())
    return ends / HOUR


def originals() -> str:
    """Gavel's figures and ours, as it counts."""
    rows: list[Sequence[object]] = []
    for trace, policy, published in ORIGINALS:
        jobs, cluster, matrix = load(trace)
        seeded = not policy_named(policy).aware
        runs = [hours(simulate(jobs, cluster, matrix, policy_named(policy), RunSettings.gavel(seed)), trace)
                for seed in range(SEEDS if seeded else 1)]  # fmt: skip
        ours = float(np.mean(runs))
        span = f" ({min(runs):.2f} to {max(runs):.2f})" if seeded else ""
        rows.append((trace, policy, f"{published:.2f}", f"{ours:.2f}{span}", f"{ours / published - 1:+.1%}"))
    jobs, cluster, matrix = load("jobs-at-once")
    bound = makespan(demand_of(jobs, cluster, matrix)).objective / HOUR
    rows.append(("jobs-at-once", "fluid bound", "17.09", f"{bound:.2f}", f"{bound / 17.09 - 1:+.1%}"))
    return "Gavel's simulator and `--assume gavel`, hours:\n\n" + table(
        ("trace", "policy", "Gavel", "Stash", "difference"), rows)  # fmt: skip


def main() -> None:
    arguments(__doc__)
    report(originals())


if __name__ == "__main__":
    main()
