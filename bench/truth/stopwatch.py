"""The second truth: the same jobs untouched, timed by nothing but a stopwatch at the optimizer (``bench/timed.py``).

Each stall is the difference of separate runs: one rank alone, one node, all nodes, all with the data pipeline; those
before the last less what they waited for their loader. It contains what arithmetic leaves out (the interpreter's own
work, copies into buckets), and the noise between launches. What a slow rank and reading take, the hand adds. Runs no
code of Stash's agent or attribution.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from bench.truth.cases import COMPUTE, Case
from bench.truth.emulated import TORCHRUN, run_on
from bench.truth.jobs import describe
from bench.workloads import TIMED
from stash.lab.testbed.bed import Testbed

LEAD_IN = 8
SECONDS = 3.0


def step(case: Case, bed: Testbed | None, waits: bool = False) -> float:
    """Seconds of a typical step of the untouched job on all ranks; ``waits``: with what it waited for its loader."""
    ends, waited = _time_case(case, bed)
    steps = np.diff(ends) - (0 if waits else np.diff(waited))
    return _typical(steps[LEAD_IN:], max(1, case.workers))


def _time_case(case: Case, bed: Testbed | None) -> tuple[np.ndarray, np.ndarray]:
    """When steps of the untouched job ended on rank 0, and how long the loop had waited for its loader by then."""
    with tempfile.TemporaryDirectory() as folder:
        model, out = Path(folder) / "model.yaml", Path(folder) / "moments.json"
        model.write_text(describe(case))
        options = {
            "--model": model,
            "--bucket-mb": 1,
            "--batch": case.batch,
            "--workers": case.workers,
            "--steps": LEAD_IN + round(SECONDS / COMPUTE),
        }
        typed = [word for option in options.items() for word in option]
        job = [TIMED, out, "stash.lab.testbed.train_emulated", *typed]

        def command(node: int) -> list[object]:
            if case.ranks == 1:
                return [sys.executable, *job]
            where: list[object] = ["--standalone"]
            if case.nodes > 1 and bed is not None:
                where = ["--nnodes", case.nodes, "--node-rank", node]
                where += ["--master-addr", bed.address(0)]
            return [*TORCHRUN, "--nproc-per-node", case.devices, *where, *job]

        try:
            run_on(bed, case.nodes, command, 180)
        except RuntimeError:
            if not out.exists():  # gloo sometimes aborts at its very end, with all steps done
                raise
        waits = out.with_name(f"{out.name}.waits")
        return np.array(json.loads(out.read_text())), np.array(json.loads(waits.read_text()))


def _typical(steps: np.ndarray, turn: int) -> float:
    """Median over turns of so many steps: workers that started together finish together, and steps come in bursts."""
    whole = len(steps) // turn * turn
    return float(np.median(steps[:whole].reshape(-1, turn).mean(axis=1)))


@cache
def _alone(case: Case) -> float:
    return step(case, None)


def stalls(case: Case, bed: Testbed | None, by_hand: dict[str, float]) -> dict[str, float]:
    """Seconds per stall; contention is as by hand, and fetch, but for what of it hides behind a longer step."""
    quiet = replace(
        case, name="", prep=0.0, read=0.0, files=0, workers=0, cause=(), neighbour=False
    )
    one = replace(
        quiet,
        nodes=1,
        devices=1,
        network=None,
        interconnect=None,
        slow_uplinks=(),
        paced=None,
        slow_ranks=(),
        jitter=0.0,
        spread=0.0,
    )
    before = _alone(one)
    found = {"compute": before}

    def add(stall: str, seconds: float) -> None:
        nonlocal before
        found[stall], before = seconds - before, seconds

    if case.ranks > 1:
        add("contention", before + by_hand["contention"])
    if case.devices > 1:
        slow = tuple((rank, factor) for rank, factor in case.slow_ranks if rank < case.devices)
        add("interconnect", step(replace(quiet, nodes=1, slow_ranks=slow), bed))
    if case.nodes > 1:
        add("network", step(quiet, bed))
    add("prep", step(replace(quiet, prep=case.prep, workers=case.workers), bed, waits=True))
    if case.files:
        hidden = before - (sum(by_hand.values()) - by_hand["fetch"]) if case.workers else 0.0
        add("fetch", before + max(0.0, by_hand["fetch"] - hidden))
    return found
