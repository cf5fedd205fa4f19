"""Schedules against what was published: Gavel's figures, its sweep, honest prices one at a time, Hadar, and speed.

``python -m bench.schedule`` takes half a minute; ``--sweep CHECKOUT`` prints Gavel's published sweep and makespan,
with the throughputs of a checkout of stanford-futuredata/gavel; ``--sharing`` who leaves a shared cluster over load;
``--speed N`` runs N jobs over two weeks (``--days``) on 4,096 GPUs.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from bench.machine import ROOT
from bench.table import report, table
from stash.schedule.economics import CloudPrice, equilibrium
from stash.schedule.job_policies import POLICIES, JobPolicy
from stash.schedule.jobs_file import read_jobs
from stash.schedule.lab_file import read_cluster
from stash.schedule.matrix import PACKED, RateMatrix, StepRate, demand_of
from stash.schedule.matrix_file import read_matrix
from stash.schedule.metrics import figures
from stash.schedule.records import HOUR, ClusterNode, LabCluster, QueuedJob
from stash.schedule.run_state import RunSettings, ScheduleCourse
from stash.schedule.shares import makespan
from stash.schedule.simulate import simulate

DATA = ROOT / "examples" / "schedule"
TYPES = ("V100", "P100", "K80")
SEEDS = 5
ORIGINALS = (
    ("jobs", "max-min", 3.82), ("jobs", "max-min blind", 5.20), ("jobs", "ftf", 3.94), ("jobs", "fifo", 9.85),
    ("jobs", "fifo-aware", 5.18), ("jobs-at-once", "makespan", 17.40), ("jobs-at-once", "makespan blind", 20.71),
    ("jobs-at-once", "fifo", 70.38),
)  # fmt: skip
"""Trace, policy, and hours that Gavel's simulator printed at c4fa400: mean JCT; of ``jobs-at-once`` the makespan."""
SWEEP = (
    (False, 4.0, {"max-min blind": 23.5, "max-min": 16.8}),
    (False, 5.6, {"max-min blind": 96.0, "max-min": 29.0, "allox": 25.3}),
    (True, 2.0, {"max-min blind": 28.9, "max-min": 21.9}),
)
"""Whether gangs, jobs per hour, published mean JCT in hours."""
MAKESPANS = {"fifo": 426.6, "Gandiva": 263.9, "makespan": 169.4}
"""Of 500 jobs, in hours; Gandiva packs two jobs on a GPU, which is not here."""
USERS, CLOUD = 40, CloudPrice("p3.2xlarge", "V100", 1, 3.06)
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


def over_load() -> str:
    """Hadar against max-min and FIFO as the first trace is pressed together."""
    jobs, cluster, matrix = load("jobs")
    small = replace(cluster, nodes=tuple(ClusterNode(f"{node.name}.{gpu}", node.gpu, 1)
                                         for node in cluster.nodes for gpu in range(node.gpus)))  # fmt: skip
    rows = []
    for factor in (2.0, 1.0, 0.5, 0.25):
        pressed = [replace(job, submit=job.submit * factor) for job in jobs]
        for name, machines in (("nodes of 4 and 8", cluster), ("nodes of 1", small)):
            found = {
                each: figures(
                    simulate(pressed, machines, matrix, POLICIES[each], RunSettings.gavel()), machines, matrix
                )
                for each in ("hadar", "max-min", "fifo")
            }
            hadar, fair, fifo = found["hadar"], found["max-min"], found["fifo"]
            rows.append(
                (
                    f"{1 / factor:g}×",
                    name,
                    f"{hadar.jct_mean_seconds / HOUR:.2f}",
                    f"{fair.jct_mean_seconds / HOUR:.2f}",
                    f"{fair.jct_mean_seconds / hadar.jct_mean_seconds:.2f}×",
                    f"{hadar.queued_mean_seconds / fair.queued_mean_seconds - 1:+.0%}",
                    f"{fair.rho_mean / hadar.rho_mean - 1:+.1%}",
                    f"{fifo.jct_mean_seconds / hadar.jct_mean_seconds:.2f}×",
                    f"{fair.makespan_seconds / hadar.makespan_seconds:.2f}×",
                )
            )
    claimed = "claimed: 2.5× in mean JCT, queueing −13 %, fairness +1.5 %, 3× over YARN, 1.20× in total"
    return f"Hadar over load ({claimed}):\n\n" + table(
        ("load", "machines", "Hadar, h", "max-min, h", "JCT", "queueing", "mean ρ", "over FIFO", "makespan"), rows
    )


def published_rates(checkout: Path) -> RateMatrix:
    """Packed rates of Gavel's ``simulation_throughputs.json``."""
    found = json.loads((checkout / "scheduler" / "simulation_throughputs.json").read_text())
    rates = {}
    for kind in TYPES:
        for key, row in found[kind.lower()].items():
            model, gpus = re.fullmatch(r"\('(.*)', (\d+)\)", key).groups()  # type: ignore[union-attr]
            rates[model, int(gpus), kind, PACKED] = StepRate(row["null"])
    return RateMatrix(rates)


def generated(count: int, per_hour: float, gangs: bool, matrix: RateMatrix, seed: int) -> list[QueuedJob]:
    """Jobs of Gavel's distributions: minutes 10^U(1.5, 3) for 80 %, else 10^U(3, 4); sizes 70/10/15/5 %."""
    draw, arrivals, at, jobs = random.Random(seed), random.Random(seed + 1), 0.0, []
    models = sorted({model for model, gpus in matrix.models if gpus == 1})
    known = set(matrix.models)
    for number in range(count):
        size = draw.choices((1, 2, 4, 8), (70, 10, 15, 5))[0] if gangs else 1
        minutes = 10 ** (draw.uniform(3, 4) if draw.random() >= 0.8 else draw.uniform(1.5, 3))
        model = draw.choice([each for each in models if (each, size) in known])
        steps = minutes * 60 * matrix.rates[model, size, "V100", PACKED].value
        jobs.append(QueuedJob(f"job-{number}", model, size, steps, at))
        at += -math.log(1 - arrivals.random()) * HOUR / per_hour
    return jobs


def sweep(checkout: Path, count: int) -> str:
    """Mean JCT of the last fifth of the jobs, 36 GPUs of each type."""
    matrix, machines = published_rates(checkout), thirty_six()
    rows: list[Sequence[object]] = []
    for gangs, per_hour, published in SWEEP:
        jobs = generated(count, per_hour, gangs, matrix, seed=0)
        kept = slice(int(count * 0.8), count)
        found = {}
        for name, theirs in published.items():
            course = simulate(jobs, machines, matrix, policy_named(name), RunSettings.gavel())
            found[name] = float((course.finish - course.submit)[kept].mean()) / HOUR
            blind = published["max-min blind"] / theirs, found["max-min blind"] / found[name]
            rows.append(("gangs" if gangs else "one GPU", per_hour, name, theirs, f"{found[name]:.1f}",
                         *(f"{ratio:.2f}" for ratio in blind)))  # fmt: skip
    return f"Gavel's sweep, mean JCT in hours, jobs {kept.start:,} to {count:,}:\n\n" + table(
        ("jobs", "per hour", "policy", "Gavel", "Stash", "blind over it", "ours"), rows)  # fmt: skip


def thirty_six() -> LabCluster:
    """36 GPUs of each type, in nodes of four."""
    return LabCluster(tuple(ClusterNode(f"{kind}-{number}", kind, 4) for kind in TYPES for number in range(9)))


def at_once(checkout: Path) -> str:
    """The makespan of 500 jobs that come at once."""
    matrix, machines = published_rates(checkout), thirty_six()
    rows = []
    for gangs in (False, True):
        jobs = [replace(job, submit=0.0) for job in generated(500, 1.0, gangs, matrix, seed=0)]
        for name in ("fifo", "fifo-aware", "makespan blind", "makespan"):
            seeds = range(SEEDS if name == "fifo" else 1)
            ends = [
                simulate(jobs, machines, matrix, policy_named(name), RunSettings.gavel(seed)).end for seed in seeds
            ]
            rows.append(("gangs" if gangs else "one GPU", name, MAKESPANS.get(name), f"{np.mean(ends) / HOUR:.1f}"))
        bound = makespan(demand_of(jobs, machines, matrix)).objective / HOUR
        rows.append(("gangs" if gangs else "one GPU", "fluid bound", None, f"{bound:.1f}"))
    return "Makespan of 500 jobs, hours (Gandiva, published 263.9, packs jobs and is not here):\n\n" + table(
        ("jobs", "policy", "published", "Stash"), rows)  # fmt: skip


def sharing(count: int = 200) -> str:
    """Who leaves a shared cluster over load, by waits alone and with prices."""
    _, lab, matrix = load("jobs")
    sizes = [(kind, int(number) // 4) for kind, number in zip(lab.types, lab.counts, strict=True)]
    machines = LabCluster(tuple(ClusterNode(f"{kind}-{at}", kind, 1) for kind, size in sizes for at in range(size)))
    hourly = (lab.costs.hourly or math.nan) / 4
    same = [QueuedJob("", model, 1, 1.0) for model, gpus in matrix.models if gpus == 1]
    per_step = {each.model: makespan(demand_of([each] * machines.gpus, machines, matrix)).objective / machines.gpus
                for each in same}  # fmt: skip
    rows = []
    for factor in (0.5, 1.0, 2.0, 8.0):
        jobs, draw = generated(count, 1.0, False, matrix, seed=0), random.Random(1)
        stretch = sum(job.steps * per_step[job.model] for job in jobs) / factor / jobs[-1].submit
        jobs = [replace(job, submit=job.submit * stretch, user=f"user-{draw.randrange(USERS)}") for job in jobs]
        for name in ("fifo", "max-min"):
            queued = partial(simulate, cluster=machines, matrix=matrix, policy=POLICIES[name],
                             settings=RunSettings(round_seconds=HOUR))  # fmt: skip
            free = replace(CLOUD, dollars_per_hour=1e9)
            ways = ((free, 15.0), (free, 1.0), (CLOUD, 15.0))
            found = [equilibrium(jobs, machines.gpus, hourly, cloud, matrix, queued, 0.0, limit)
                     for cloud, limit in ways]  # fmt: skip
            first = found[0].steps[0].bills
            ratio = [bill.mean_wait_hours / bill.mean_run_hours for bill in first]
            left = [f"{len(each.left) / len(first):.0%}" for each in found]
            rows.append((f"{factor:g}", name, f"{np.median(ratio):.2f}", f"{max(ratio):.1f}", *left))
    return (
        f"Who leaves ({count} one-GPU jobs of Gavel's distributions, each of one of {USERS} users drawn alike, on a "
        f"quarter of the example's cluster, {machines.gpus} GPUs for ${hourly:.2f} an hour; "
        "rounds of an hour; waiting costs nothing; "
        f"the cloud is {CLOUD.instance} at ${CLOUD.dollars_per_hour} by the second; published: > 80 % at 15×):\n\n"
    ) + table(("load", "policy", "wait over runtime, median user", "most", "leave at 15×, by waits", "at 1×",
               "at 15×, with prices"), rows)  # fmt: skip


def many(count: int, days: float, policies: Sequence[str]) -> str:
    """So many jobs over so many days on 4,096 GPUs of four types, rounds of a quarter of an hour, at 0.9 of load.

    With AlloX among the policies, which takes no gangs, all jobs have one GPU.
    """
    _, _, matrix = load("jobs")
    rates = dict(matrix.rates)
    for (model, gpus, kind, place), rate in matrix.rates.items():
        if kind == "P100":
            rates[model, gpus, "P40", place] = StepRate(rate.value * 0.6)
    matrix, kinds = RateMatrix(rates), (*TYPES, "P40")
    machines = LabCluster(tuple(ClusterNode(f"{kind}-{number}", kind, 8) for kind in kinds for number in range(128)))
    jobs = generated(count, count / (days * 24), "allox" not in policies, matrix, seed=0)
    speed = {key: np.mean([matrix.rates[(*key, kind, PACKED)].value for kind in kinds]) for key in matrix.models}
    work = sum(job.gpus * job.steps / speed[job.model, job.gpus] for job in jobs)
    jobs = [replace(job, steps=job.steps * 0.9 * 4096 * days * 86400 / work) for job in jobs]
    rows = []
    for name in policies:
        began = time.process_time()
        course = simulate(jobs, machines, matrix, POLICIES[name], RunSettings(round_seconds=900.0))
        took = time.process_time() - began
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        jct = float((course.finish - course.submit).mean()) / HOUR
        rows.append((name, f"{took:.0f} s", f"{most:,.0f} MB", f"{jct:.2f} h"))
        print("done:", *rows[-1], flush=True)
    return f"{count:,} jobs over {days:g} days on 4,096 GPUs, processor time on one core:\n\n" + table(
        ("policy", "time", "memory", "mean JCT"), rows)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sweep", type=Path, metavar="CHECKOUT")
    parser.add_argument("--sweep-jobs", type=int, default=5000)
    parser.add_argument("--sharing", action="store_true")
    parser.add_argument("--speed", type=int, metavar="N")
    parser.add_argument("--days", type=float, default=14.0)
    parser.add_argument("--policies", default="fifo,srtf,max-min")
    given = parser.parse_args()
    if given.speed is not None:
        report(many(given.speed, given.days, given.policies.split(",")))
    elif given.sweep is not None:
        report(at_once(given.sweep), sweep(given.sweep, given.sweep_jobs))
    elif given.sharing:
        report(sharing())
    else:
        report(originals(), honest(), over_load())


if __name__ == "__main__":
    main()
