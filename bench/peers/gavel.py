"""Gavel's simulator and ours on the same jobs, one after the other in turns: what both find, and how long each takes.

``python -m bench.peers.gavel CHECKOUT --python PYTHON`` takes a checkout of stanford-futuredata/gavel and a Python
with cvxpy, ecos, highspy, numpy, scipy and psutil. Its gRPC stubs and its estimator of throughputs are replaced by
empty modules: a simulation calls none of them. Which of several optima is taken moves its figures: ``--shares`` runs
both once more under max-min with the same kind of shares, ours with those that its class and ECOS's interior point
compute, and its own with a simplex method in place of ECOS, whose shares are at a vertex as ours are. ``--fifo``
runs its blind FIFO on the traces of its physical cluster and on 500 jobs at once, as it is, and with the type that it
draws in place of the one that it takes.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.schedule import SEEDS, generated, load, published_rates, thirty_six
from bench.table import report, table
from stash.schedule.job_policies import POLICIES, JobPolicy
from stash.schedule.matrix import RateMatrix
from stash.schedule.records import HOUR, JobDemand, QueuedJob, ShareAllocation
from stash.schedule.run_state import RunSettings
from stash.schedule.simulate import simulate

ITS_NAME = {
    "max-min": "max_min_fairness_perf",
    "ftf": "finish_time_fairness_perf",
    "makespan": "min_total_duration_perf",
    "fifo": "fifo",
}
Run = tuple[float, float, float]
"""Processor seconds, mean JCT and makespan."""
GPUS, PHYSICAL = 36, {"v100": 8, "p100": 16, "k80": 24}
_START = """
import sys, types
sys.path[:0] = [{folder!r}]
for name in ("matrix_completion", "runtime", "runtime.rpc", "runtime.rpc.scheduler_server",
             "runtime.rpc.scheduler_client"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["runtime.rpc"].scheduler_server = sys.modules["runtime.rpc.scheduler_server"]
sys.modules["runtime.rpc"].scheduler_client = sys.modules["runtime.rpc.scheduler_client"]
import json, logging, time
import scheduler, utils
logging.disable(logging.CRITICAL)
if {drawn}:
    import inspect
    from policies import fifo
    text, line = inspect.getsource(fifo), "len(available_worker_types_with_scale_factor))" + chr(10)
    assert text.count(line) == 1
    after = line + 16 * " " + "worker_type = available_worker_types_with_scale_factor[worker_type_idx]" + chr(10)
    exec(compile(text.replace(line, after), fifo.__file__, "exec"), fifo.__dict__)
jobs, arrivals = utils.parse_trace({trace!r})
policy = utils.get_policy({policy!r}, solver={solver!r}, seed={seed})
began = time.process_time()
found = scheduler.Scheduler(policy, throughputs_file={rates!r}, simulate=True, seed={seed}, time_per_iteration=360)
counts = {counts!r}
found.simulate(counts, arrivals, jobs, num_gpus_per_server=dict.fromkeys(counts, 4))
took = time.process_time() - began
times = [seconds for seconds in found._job_completion_times.values() if seconds is not None]
print("RESULT", json.dumps([took, sum(times) / len(times), found.get_current_timestamp()]))
"""
_SHARES = """
import json, sys
sys.path[:0] = [{folder!r}, {folder!r} + "/policies"]
from job_id_pair import JobIdPair
from policies import max_min_fairness
policy = max_min_fairness.MaxMinFairnessPolicyWithPerf("ECOS")
for line in sys.stdin:
    rates, gpus, weight, counts = json.loads(line)
    ids, kinds = [JobIdPair(job, None) for job in range(len(gpus))], ["t%d" % kind for kind in range(len(counts))]
    found = policy.get_allocation({{job: dict(zip(kinds, row)) for job, row in zip(ids, rates)}},
                                  dict(zip(ids, gpus)), dict(zip(ids, weight)), dict(zip(kinds, counts)))
    print("RESULT", json.dumps([[found[job][kind] for kind in kinds] for job in ids]), flush=True)
"""


def trace_of(jobs: Sequence[QueuedJob]) -> str:
    """In Gavel's ten columns."""
    return "".join(
        f"{job.model}\tpython\tfolder\t-n\t0\t{int(job.steps)}\t{job.gpus}\t1\t-1.000000\t{job.submit:.6f}\n"
        for job in jobs
    )


def its_run(
    checkout: Path, python: str, jobs: Sequence[QueuedJob], policy: str, solver: str = "ECOS", seed: int = 0,
    physical: bool = False, drawn: bool = False,
) -> Run:  # fmt: skip
    """(processor seconds, mean JCT, makespan) of Gavel's simulator; on 36 GPUs of each type, or as ``physical``."""
    rates = "physical_cluster_throughputs.json" if physical else "simulation_throughputs.json"
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "jobs.trace"
        trace.write_text(trace_of(jobs))
        scheduler = checkout / "scheduler"
        script = _START.format(
            folder=str(scheduler), trace=str(trace), policy=ITS_NAME[policy], solver=solver, seed=seed, drawn=drawn,
            counts=PHYSICAL if physical else dict.fromkeys(PHYSICAL, GPUS), rates=str(scheduler / rates),
        )  # fmt: skip
        done = subprocess.run(
            [python, "-W", "ignore", "-c", script], capture_output=True, text=True, cwd=scheduler, check=False
        )
    found = re.search(r"^RESULT (.*)$", done.stdout, re.MULTILINE)
    if found is None:
        raise SystemExit(f"Gavel's simulator failed: {done.stderr[-2000:]}")
    took, jct, makespan = json.loads(found[1])
    return took, jct, makespan


@contextmanager
def its_max_min(checkout: Path, python: str) -> Iterator[JobPolicy]:
    """A policy of ours whose shares Gavel's class computes, in a process of its own."""
    script = _SHARES.format(folder=str(checkout / "scheduler"))
    with subprocess.Popen(
        [python, "-W", "ignore", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        asked, answers = process.stdin, process.stdout
        assert asked is not None
        assert answers is not None

        def allocate(demand: JobDemand) -> ShareAllocation:
            columns = (demand.rates, demand.gpus, demand.weight, demand.counts)
            print(json.dumps([each.tolist() for each in columns]), file=asked, flush=True)
            for line in answers:
                if line.startswith("RESULT "):
                    return ShareAllocation(np.array(json.loads(line[7:])), float("nan"))
            raise SystemExit("Gavel's policy ended")

        yield JobPolicy("max-min by ECOS", allocate, "")
        asked.close()


def our_run(jobs: Sequence[QueuedJob], matrix: RateMatrix, policy: JobPolicy) -> Run:
    """The same of ours, as Gavel counts."""
    machines = thirty_six()
    began = time.process_time()
    course = simulate(jobs, machines, matrix, policy, RunSettings.gavel())
    return time.process_time() - began, float((course.finish - course.submit).mean()), course.end


def stale_draw(checkout: Path, python: str) -> str:
    """Its blind FIFO takes a variable that still holds the last type looked at; what the type drawn would give."""
    rates = published_rates(checkout)
    many = [
        replace(job, submit=0.0, steps=float(int(job.steps))) for job in generated(500, 1.0, False, rates, seed=0)
    ]
    traces = {"jobs": load("jobs"), "jobs-at-once": load("jobs-at-once"), "500 at once": (many, thirty_six(), rates)}
    rows = []
    for trace, (jobs, machines, matrix) in traces.items():
        figures: dict[str, list[tuple[float, float]]] = {"as it is": [], "the type drawn": [], "Stash": []}
        for seed in range(3 if len(jobs) == 500 else SEEDS):
            for name, drawn in (("as it is", False), ("the type drawn", True)):
                found = its_run(checkout, python, jobs, "fifo", seed=seed, physical=len(jobs) < 500, drawn=drawn)
                figures[name].append(found[1:])
            course = simulate(jobs, machines, matrix, POLICIES["fifo"], RunSettings.gavel(seed))
            figures["Stash"].append((float((course.finish - course.submit).mean()), course.end))
        for name, several in figures.items():
            cells = [[pair[at] / HOUR for pair in several] for at in (0, 1)]
            rows.append(
                (trace, name, *(f"{np.mean(each):.2f} ({min(each):.2f} to {max(each):.2f})" for each in cells))
            )
    return f"Blind FIFO, {SEEDS} seeds, three of the 500 jobs, hours:\n\n" + table(
        ("trace", "type", "mean JCT", "makespan"), rows)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--python", default="python3")
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--per-hour", type=float, default=2.0)
    parser.add_argument("--policies", default="max-min,ftf")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--shares", action="store_true")
    parser.add_argument("--fifo", action="store_true")
    given = parser.parse_args()
    if given.fifo:
        report(stale_draw(given.checkout, given.python))
        return
    matrix = published_rates(given.checkout)
    jobs = [QueuedJob(job.name, job.model, job.gpus, float(int(job.steps)), job.submit)
            for job in generated(given.jobs, given.per_hour, True, matrix, seed=0)]  # fmt: skip
    rows: list[Sequence[object]] = []

    def compared(policy: str, shares: str, its: Sequence[Run], ours: Sequence[Run]) -> None:
        gavel, stash = np.median(its, axis=0), np.median(ours, axis=0)
        rows.append((policy, shares, f"{gavel[0]:.1f} s", f"{stash[0]:.2f} s", f"{gavel[0] / stash[0]:.0f}×",
                     f"{gavel[1] / HOUR:.2f} h", f"{stash[1] / HOUR:.2f} h", f"{stash[1] / gavel[1] - 1:+.1%}",
                     f"{stash[2] / gavel[2] - 1:+.1%}"))  # fmt: skip

    for policy in given.policies.split(","):
        its, ours = [], []
        for _ in range(given.turns):
            its.append(its_run(given.checkout, given.python, jobs, policy))
            ours.append(our_run(jobs, matrix, POLICIES[policy]))
        compared(policy, "its by ECOS", its, ours)
        if given.shares and policy == "max-min":
            compared(policy, "its by HiGHS", [its_run(given.checkout, given.python, jobs, policy, "HIGHS")], ours)
            with its_max_min(given.checkout, given.python) as fed:
                found = our_run(jobs, matrix, fed)
            compared(policy, "both by ECOS (ours asks for them)", its, [found])
    report(f"{given.jobs} jobs, {given.per_hour:g} an hour, {GPUS} GPUs of each type, processor time:", table(
        ("policy", "shares", "Gavel", "Stash", "faster", "its JCT", "our JCT", "JCT", "makespan"), rows))  # fmt: skip


if __name__ == "__main__":
    main()
