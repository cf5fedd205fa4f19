"""Objectives of Gavel's own policy classes and of ours, on random jobs.

``python -m bench.peers.gavel_policies CHECKOUT --python PYTHON`` (see ``bench.peers.gavel``) has its classes allocate
and judges their shares and ours by the same formulas. Its makespan is bisected to 5 % and it has no ratio of work to
dollars, so these two are also formulated again in cvxpy over its base constraints. ``--write FILE`` keeps instances
and objectives for tests.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.table import report, table
from stash.schedule import shares
from stash.schedule.records import Floats, JobDemand, ShareAllocation

RULES: Mapping[str, Callable[[JobDemand], ShareAllocation]] = {
    "max-min": shares.max_min, "ftf": shares.finish_time_fairness, "cost-gavel": shares.cheapest_sum,
    "makespan": shares.makespan, "makespan, exact": shares.makespan, "cost, exact": shares.cheapest,
}  # fmt: skip
_START = """
import json, sys
sys.path[:0] = [{folder!r}, {folder!r} + "/policies"]
import cvxpy as cp, numpy as np
from job_id_pair import JobIdPair
from policies import finish_time_fairness, max_min_fairness, max_sum_throughput, min_total_duration, policy
S, answers = {solver!r}, []
MaxMin, Fair = max_min_fairness.MaxMinFairnessPolicyWithPerf, finish_time_fairness.FinishTimeFairnessPolicyWithPerf
for one in json.load(sys.stdin):
    rates = np.array(one["rates"]); m, n = rates.shape
    ids, kinds = [JobIdPair(j, None) for j in range(m)], ["t%d" % t for t in range(n)]
    of = lambda name: dict(zip(ids, one[name]))
    d = {{j: dict(zip(kinds, row)) for j, row in zip(ids, one["rates"])}}
    N = dict(zip(kinds, one["counts"])); s, left, ones = of("gpus"), of("left"), dict.fromkeys(ids, 1.0)
    found = {{
        "max-min": MaxMin(S).get_allocation(d, s, of("weight"), N),
        "ftf": Fair(S).get_allocation(d, s, ones, of("elapsed"), left, N),
        "cost-gavel": max_sum_throughput.ThroughputNormalizedByCostSumWithPerf(S).get_allocation(
            d, s, N, dict(zip(kinds, one["costs"]))),
        "makespan": min_total_duration.MinTotalDurationPolicyWithPerf(S).get_allocation(d, s, left, N),
    }}
    found = {{name: [[x[j][t] for t in kinds] for j in ids] for name, x in found.items()}}
    base = policy.Policy(S); base._num_workers = one["counts"]
    sizes = np.repeat(np.array(one["gpus"])[:, None], n, axis=1)
    x, z = cp.Variable((m, n)), cp.Variable()
    need = np.array(one["left"]) / rates.max(axis=1); unit = need.mean()
    thr = cp.sum(cp.multiply(rates / rates.max(axis=1)[:, None], x), axis=1)
    cp.Problem(cp.Maximize(z), base.get_base_constraints(x, sizes) + [thr >= z * need / unit]).solve(solver=S)
    found["makespan, exact"] = x.value.tolist()
    value, cost = rates / rates.max(axis=1)[:, None], sizes * np.array(one["costs"])
    ratio = 0.0
    for _ in range(30):
        gain = cp.sum(cp.multiply(value - ratio * cost, x))
        cp.Problem(cp.Maximize(gain), base.get_base_constraints(x, sizes)).solve(solver=S)
        if x.value.sum() < 1e-6: break
        ratio, best = float((value * x.value).sum() / (cost * x.value).sum()), x.value.tolist()
        found["cost, exact"] = best
    answers.append(found)
print(json.dumps(answers))
"""


def instances(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Jobs of 1 to 4 GPUs on three types, a tenth of the cells 0, with work, waits and weights that differ."""
    draw = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        jobs = int(draw.integers(3, 13))
        rates = draw.uniform(0.5, 8, (jobs, 3)) * np.where(draw.random((jobs, 3)) < 0.1, 0, 1)
        rates[rates.sum(axis=1) == 0, 0] = 1.0
        weight, left = draw.choice([1.0, 2.0, 3.0], jobs), draw.uniform(1e3, 9e4, jobs)
        elapsed = draw.uniform(0, 2e4, jobs)
        found.append({
            "rates": rates.round(3).tolist(), "weight": weight.tolist(),
            "gpus": draw.choice([1, 2, 4], jobs).tolist(),
            "left": left.round(1).tolist(), "elapsed": elapsed.round(1).tolist(),
            "counts": draw.integers(4, 13, 3).tolist(), "costs": draw.uniform(0.5, 4, 3).round(2).tolist(),
        })  # fmt: skip
    return found


def demand_from(one: Mapping[str, Any]) -> JobDemand:
    """An instance as policies see it."""
    size = len(one["gpus"])
    array = {name: np.array(one[name], dtype=float) for name in ("rates", "weight", "left", "elapsed", "costs")}
    return JobDemand(
        gpus=np.array(one["gpus"]), counts=np.array(one["counts"]), isolated=np.zeros(size), ids=np.arange(size),
        model=np.arange(size),
        running=np.full(size, -1), attained=np.zeros(size), deadline=np.full(size, np.inf), **array,
    )  # fmt: skip


def judged(name: str, here: JobDemand, x: Floats) -> float:
    """The objective of shares by the published formula; more is better of all but ``ftf`` and ``makespan``."""
    rates = (here.rates * x).sum(axis=1)
    if name == "max-min":
        return float((here.gpus * rates / (here.weight * shares.equal_rates(here))).min())
    if name == "ftf":
        return float(((here.elapsed + here.left / rates) / (here.left / shares.isolated_rates(here))).max())
    if name == "cost-gavel":
        return float((here.rates / here.costs * x).sum())
    if name == "cost, exact":
        return float((rates / here.best).sum() / (here.costs * here.gpus[:, None] * x).sum())
    return float((here.left / rates).max())


def its_shares(checkout: Path, python: str, solver: str, some: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of every policy, x of each instance."""
    script = _START.format(folder=str(checkout / "scheduler"), solver=solver)
    done = subprocess.run(
        [python, "-W", "ignore", "-c", script], input=json.dumps(some), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"Gavel's policies failed: {done.stderr[-2000:]}")
    answers: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--python", default="python3")
    parser.add_argument("--solver", default="CLARABEL")
    parser.add_argument("--instances", type=int, default=50)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    some = instances(given.instances)
    its = its_shares(given.checkout, given.python, given.solver, some)
    rows, kept = [], [dict(one, objectives={}) for one in some]
    for name, rule in RULES.items():
        apart = []
        for one, answer, keep in zip(some, its, kept, strict=True):
            here = demand_from(one)
            theirs = judged(name, here, np.array(answer[name]))
            apart.append(rule(here).objective / theirs - 1)
            keep["objectives"][name] = theirs
        rows.append((name, f"{np.median(np.abs(apart)):.1e}", f"{min(apart):+.1e}", f"{max(apart):+.1e}"))
    if given.write:
        given.write.write_text(json.dumps(kept) + "\n")
    report(f"Objective of ours over Gavel's, less 1, {len(some)} random instances, its programs by {given.solver}:",
           table(("policy", "median size", "least", "most"), rows))  # fmt: skip


if __name__ == "__main__":
    main()
