"""What the advice promises against what it brings, of remedies that no change to a script is (those: ``bench.fix``).

Each job is profiled on the testbed (as root), the remedy's predicted saving is taken from the advice, the remedy is
applied for real, and the job is profiled again. Savings are per step of the job as it was: where a remedy puts more
samples into a step, the step after it counts in proportion. Knows remedies by their names, not by their texts.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bench.machine import arguments
from bench.table import progress, report, table
from bench.truth.cases import Case, Layer, named
from bench.truth.jobs import cluster, profile
from stash.advice.case import Case as AdviceCase
from stash.advice.remedies import REMEDIES
from stash.analysis.attribution import attribute
from stash.analysis.breakdown import Breakdown
from stash.core.intervals import Interval

PRECISION = 1.0
"""Per cent of the step, of each profile."""


@dataclass(frozen=True)
class Trial:
    """A job of the truth suite, a stall of it, and a remedy: its name, what it changes, how many samples more."""

    job: str
    stall: str
    remedy: str
    done: str
    apply: Callable[[Case], Case]
    samples: float = 1.0


@dataclass(frozen=True)
class Found:
    """A profile: the step, with its interval, and what each remedy of the stall is predicted to save."""

    step: Interval
    stall_seconds: float
    saves: dict[str, float | None]


def doubled(case: Case) -> Case:
    """Twice the batch: every pass and every sample's making twice as long, and the same gradients."""
    layers = tuple(Layer(layer.bytes, 2 * layer.forward, 2 * layer.backward) for layer in case.layers)
    return replace(case, layers=layers, batch=2 * case.batch, prep=2 * case.prep, read=2 * case.read)


NETWORK, SHARED = "network 1x, 2 nodes, not overlapped", "interconnect 1x in set time, overlapped"
DISK = "fetch from a disk of 20 MB/s"
TRIALS = (
    Trial(NETWORK, "network", "accumulate", "4 batches inside no_sync()", lambda c: replace(c, accumulate=4), 4),
    Trial(NETWORK, "network", "larger-batch", "batch 8 instead of 4", doubled, 2),
    Trial(NETWORK, "network", "faster-network", "400 instead of 200mbit", lambda c: replace(c, network="400mbit")),
    Trial(SHARED, "interconnect", "accumulate", "4 batches inside no_sync()", lambda c: replace(c, accumulate=4), 4),
    Trial(SHARED, "interconnect", "larger-batch", "batch 8 instead of 4", doubled, 2),
    Trial(DISK, "fetch", "faster-disk", "40 instead of 20 MB/s", lambda c: replace(c, disk="40MB/s")),
    Trial(DISK, "fetch", "faster-disk", "80 instead of 20 MB/s", lambda c: replace(c, disk="80MB/s")),
    Trial("rank 1 slow, 2x", "contention", "slow-rank", "no slow rank", lambda c: replace(c, slow_ranks=())),
)


def measure(case: Case, stall: str, budget: float) -> Found:
    """Profile a job on its testbed; raises RuntimeError if there is no profile."""
    with tempfile.TemporaryDirectory() as folder, cluster(case) as (bed, _):
        found = profile(case, Path(folder), bed, budget, PRECISION)
    breakdown = attribute(found)
    remedies = REMEDIES[stall](AdviceCase(breakdown, found))
    saves = {remedy.name: remedy.saves for remedy in remedies if remedy.name}
    return Found(step(breakdown), breakdown.seconds(stall), saves)


def step(breakdown: Breakdown) -> Interval:
    """The step's time; its interval is at most as wide as those of its parts one after the other."""
    halves = [stall.time.half_width for stall in breakdown.stalls]
    seconds = breakdown.step_seconds
    if any(half is None for half in halves):
        return Interval(value=seconds)
    half = sum(half for half in halves if half is not None)
    return Interval(value=seconds, low=seconds - half, high=seconds + half)


def row(trial: Trial, before: Found, after: Found) -> list[str]:
    """One line of the table, in ms."""
    same = after.step.scaled(1 / trial.samples)  # the step's time for as many samples as before
    predicted, obtained = before.saves.get(trial.remedy), before.step.value - same.value
    halves = before.step.half_width, same.half_width
    spread = "" if None in halves else f" ± {1e3 * sum(half for half in halves if half is not None):.1f}"
    return [
        trial.job,
        f"{before.step.value * 1e3:.1f}",
        f"{trial.stall} {before.stall_seconds * 1e3:.1f}",
        f"{trial.remedy}: {trial.done}",
        "no such advice" if predicted is None else f"{predicted * 1e3:.1f}",
        f"{obtained * 1e3:.1f}{spread}",
        "" if predicted is None else f"{(obtained - predicted) / before.step.value:+.1%}",
    ]


HEADS = ("job", "step, ms", "stall, ms", "remedy", "predicted, ms", "obtained, ms", "difference, of the step")


def main() -> int:
    options = arguments(
        __doc__,
        only=("", "trials whose job or remedy contains this"),
        budget=(15.0, "seconds of measuring for each profile"),
    )
    rows, before = [], {}
    for trial in TRIALS:
        if options.only not in f"{trial.job} {trial.remedy}":
            continue
        (case,) = named(trial.job)
        if trial.job not in before:
            before[trial.job] = measure(case, trial.stall, options.budget)
        after = measure(trial.apply(case), trial.stall, options.budget)
        rows.append(row(trial, before[trial.job], after))
        progress(*rows[-1])
    report(table(HEADS, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
