"""Schedules against the figures that Gavel's own simulator printed, by its clock: whole rounds, free moves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from bench.machine import ROOT, arguments
from bench.table import report, table
from stash.schedule import shares
from stash.schedule.allocation import POLICIES, JobPolicy, choose_types, priorities
from stash.schedule.jobs_file import read_jobs
from stash.schedule.lab_file import read_cluster
from stash.schedule.matrix import PACKED, SPREAD, RateMatrix, demand_of
from stash.schedule.matrix_file import read_matrix
from stash.schedule.records import HOUR, Floats, JobDemand, LabCluster, QueuedJob, ShareAllocation, WholeNumbers
from stash.schedule.simulate import ROUND, ScheduleCourse, ScheduleRun

DATA = ROOT / "examples" / "schedule"
SEEDS = 5
ORIGINALS = (
    ("jobs", "max-min", 3.82), ("jobs", "max-min blind", 5.20), ("jobs", "ftf", 3.94), ("jobs", "fifo", 9.85),
    ("jobs", "fifo-aware", 5.18), ("jobs-at-once", "makespan", 17.40), ("jobs-at-once", "makespan blind", 20.71),
    ("jobs-at-once", "fifo", 70.38),
)  # fmt: skip
"""Trace, policy, and hours that Gavel's simulator printed at c4fa400: mean JCT; of ``jobs-at-once`` the makespan."""
SETTLE = 1920.0
"""Seconds between two of its allocations."""
Loaded = tuple[tuple[QueuedJob, ...], LabCluster, RateMatrix]


def load(trace: str) -> Loaded:
    """A trace of Gavel's, its cluster and throughputs."""
    cluster, matrix = read_cluster(DATA / "cluster.yaml"), read_matrix(DATA / "matrix.csv")
    return read_jobs(DATA / f"{trace}.csv", cluster, matrix).jobs, cluster, matrix


# Policies that do not know types


def with_rates_of_fastest(demand: JobDemand) -> JobDemand:
    """The same jobs with every type as fast as each job's fastest: what a policy without types sees."""
    return replace(demand, rates=np.repeat(demand.best[:, None], demand.rates.shape[1], axis=1))


def make_blind(policy: JobPolicy) -> JobPolicy:
    """The same policy taking all GPUs for equal: each job's time over all types in proportion to their sizes.

    It keeps Σ_t x of every job, so it is another optimum of a program that saw no types. What falls on a type where
    a job does not run is lost to it: a blind policy does not know.
    """

    def rule(demand: JobDemand) -> ShareAllocation:
        found = policy.allocate(with_rates_of_fastest(demand))
        total = found.x.sum(axis=1, keepdims=True)
        return replace(found, x=total * demand.counts[None, :] / demand.counts.sum(), type_prices=None)

    return replace(policy, name=f"{policy.name} blind", rule=rule)


def policy_named(name: str) -> JobPolicy:
    """``max-min`` as Gavel's code has it, without water-filling; or ``max-min blind``."""
    plain, _, blind = name.partition(" ")
    policy = POLICIES[plain]
    if plain == "max-min":
        policy = replace(policy, rule=partial(shares.max_min, fill=False))
    return make_blind(policy) if blind else policy


# Gavel's clock


class GavelRun(ScheduleRun):
    """A round ends with the last of its jobs, nothing happens within it, and moves cost nothing."""

    def __init__(self, loaded: Loaded, policy: JobPolicy, seed: int = 0) -> None:
        jobs, cluster, matrix = loaded
        spread = {(*key[:3], SPREAD): rate for key, rate in matrix.rates.items() if key[3] == PACKED}
        packed = {key: rate for key, rate in matrix.rates.items() if key[3] == PACKED}
        free = dict.fromkeys((job.model for job in jobs), 0.0)
        super().__init__(jobs, cluster, RateMatrix({**packed, **spread}, free), policy, ROUND, seed)
        self.random = np.random.default_rng(seed)
        self.deficit = np.zeros_like(self.x)

    def allocate(self, jobs: WholeNumbers) -> None:
        elapsed = self.now - max(self.allocated_at, 0.0)
        self.deficit[jobs] += self.x[jobs] * elapsed - self.received[jobs]
        super().allocate(jobs)

    def decide(self) -> None:
        jobs = np.array([*self.active], dtype=np.int64)
        if len(jobs):
            self.update_shares(jobs, SETTLE, self.changed)
            self.change_jobs(jobs, self.choice(jobs, self.turns(jobs)))

    def turns(self, jobs: WholeNumbers) -> WholeNumbers:
        """All entries of the first type before those of the second, as its code has it without a global queue."""
        runs, x = self.packed[jobs] > 0, self.x[jobs]
        priority: Floats = np.where(runs, priorities(x, self.received[jobs], self.round_seconds), 0.0)
        types = list(range(len(self.cluster.types)))
        if self.policy.seeded or self.policy.name.endswith(" blind"):
            self.random.shuffle(types)
        allowed = runs if self.policy.fills or self.policy.backfills else runs & (x > 0)
        order = np.lexsort((-self.deficit[jobs], -priority), axis=0) * len(types) + np.arange(len(types))
        entries = order.T.take(types, 0).ravel()
        return np.asarray(entries[allowed.take(entries)], dtype=np.int64)

    def choice(self, jobs: WholeNumbers, order: WholeNumbers) -> dict[int, int]:
        """Without preemption what runs, and what fits beside it."""
        if self.policy.preempts:
            return super().choice(jobs, order)
        found = {int(job): int(self.kind[job]) for job in jobs if self.kind[job] >= 0}
        waits = order[self.kind[jobs[order // len(self.free.left)]] < 0]
        more = choose_types(waits, self.gpus[jobs], self.free.left)
        return {**found, **{int(jobs[at]): kind for at, kind in more.items()}}

    def play(self) -> None:
        while self.active or self.arrivals:
            if not self.active:
                self.advance(max(self.arrival_time(), self.now))
            self.arrive()
            self.decide()
            running = np.flatnonzero(self.kind >= 0)
            if not len(running):
                self.wait_for_next()
                continue
            ends = self.ends[running]
            end = min(float(ends.max()), self.now + self.round_seconds)
            over = sorted((float(self.ends[job]), int(job)) for job in running if self.ends[job] <= end * (1 + 1e-12))
            self.advance(max(end, self.now))
            for when, job in over:
                self.leave(job)
                self.finish[job] = when

    def wait_for_next(self) -> None:
        """Nobody runs: on to the next arrival, or where there is none, to an allocation that is due."""
        coming = self.arrival_time()
        if math.isinf(coming):
            self.allocated_at = -math.inf
            coming = self.now + self.round_seconds
        self.advance(coming)


def hours(course: ScheduleCourse, trace: str) -> float:
    ends = course.end if trace == "jobs-at-once" else float((course.finish - course.submit).mean())
    return ends / HOUR


def run_seeds(trace: str, name: str, count: int) -> list[float]:
    """Hours of the policy by Gavel's clock, of so many seeds where types are drawn, else of one."""
    loaded, policy = load(trace), policy_named(name)
    drawn = policy.seeded or policy.name.endswith(" blind")
    return [hours(GavelRun(loaded, policy, seed).course(), trace) for seed in range(count if drawn else 1)]


def originals() -> str:
    """Gavel's figures and ours, as it counts."""
    rows: list[Sequence[object]] = []
    for trace, policy, published in ORIGINALS:
        runs = run_seeds(trace, policy, SEEDS)
        ours = float(np.mean(runs))
        span = f" ({min(runs):.2f} to {max(runs):.2f})" if len(runs) > 1 else ""
        rows.append((trace, policy, f"{published:.2f}", f"{ours:.2f}{span}", f"{ours / published - 1:+.1%}"))
    jobs, cluster, matrix = load("jobs-at-once")
    bound = makespan_hours(demand_of(jobs, cluster, matrix))
    rows.append(("jobs-at-once", "fluid bound", "17.09", f"{bound:.2f}", f"{bound / 17.09 - 1:+.1%}"))
    return "Gavel's simulator, and jobs played by its clock, hours:\n\n" + table(
        ("trace", "policy", "Gavel", "Stash", "difference"), rows)  # fmt: skip


def makespan_hours(demand: JobDemand) -> float:
    return shares.makespan(demand).objective / HOUR


def main() -> None:
    arguments(__doc__)
    report(originals())


if __name__ == "__main__":
    main()
