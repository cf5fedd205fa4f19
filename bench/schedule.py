"""Schedules against what was published: Gavel's figures, and honest prices added one at a time; half a minute."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

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


def honest() -> str:
    """What changes the figures of the first trace, one at a time, and the ranking by mean JCT."""
    jobs, cluster, matrix = load("jobs")
    free = RunSettings(spreading=False, restarts=False)
    ways: Mapping[str, Callable[[int], tuple[RateMatrix, RunSettings]]] = {
        "as Gavel counts": lambda seed: (matrix, RunSettings.gavel(seed)),
        "exact events": lambda seed: (matrix, replace(free, seed=seed)),
        "+ spreading": lambda seed: (matrix, replace(free, spreading=True, seed=seed)),
        "+ restarts of 45 s": lambda seed: (matrix, replace(free, restarts=True, seed=seed)),
        "+ both": lambda seed: (matrix, RunSettings(seed=seed)),
        "+ both, rates ± 20 %": lambda seed: (widened(matrix, 0.2).drawn(seed), RunSettings(seed=seed)),
    }
    names = (
        "max-min",
        "ftf",
        "makespan",
        "srtf",
        "fifo-aware",
        "cost",
        "hadar",
        "max-min blind",
        "fifo",
    )
    rows = []
    for way, of in ways.items():
        means = {}
        for name in names:
            several = range(SEEDS) if "±" in way or not policy_named(name).aware else range(1)
            runs = [simulate(jobs, cluster, of(seed)[0], policy_named(name), of(seed)[1]) for seed in several]
            means[name] = float(np.mean([hours(run, "jobs") for run in runs]))
        ranking = sorted(means, key=lambda name: means[name])
        rows.append((way, *(f"{means[name]:.2f}" for name in names), " < ".join(ranking[:4])))
    return "Mean JCT of the first trace in hours, prices added one at a time:\n\n" + table(
        ("", *names, "ranking"), rows)  # fmt: skip


def widened(matrix: RateMatrix, share: float) -> RateMatrix:
    """With an interval of this half width around every rate, as forecasts have."""
    rates = {key: replace(rate, low=rate.value * (1 - share), high=rate.value * (1 + share))
             for key, rate in matrix.rates.items()}  # fmt: skip
    return replace(matrix, rates=rates)


def main() -> None:
    arguments(__doc__)
    report(originals(), honest())


if __name__ == "__main__":
    main()
