"""The bubble of real pipelines beside the one that follows from their schedule, and late messages beside a stopwatch.

    python -m bench.truth.pipelines [WORDS]        root; 12 minutes of a quiet machine

Stages sleep (``tests/integration/scripts/scheduled_pipeline.py``), on two emulated nodes. *By hand* every rank's
passes are played one after the other, each as soon as what it needs is there, with messages that take nothing: what
ranks idle is the bubble, and with the mean of all passes for each it is the schedule's part. Where messages are
large, the stopwatch has what they take: the step by the script's own clock, without Stash, less that of the same job
with small ones. *Cause* is right where the slow stage is named, or none is, and where messages are late if, and only
if, they are large.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bench.machine import ROOT, arguments
from bench.table import report, show
from bench.truth.emulated import Cluster, number, run_plain, run_profile
from stash.analysis.attribution import attribute
from stash.analysis.bubble import Bubble

SCRIPT = ROOT / "tests/integration/scripts/scheduled_pipeline.py"
FORWARD, SLOW, SMALL, STEPS, BESIDE = 0.02, 2.0, 8, 12, 0.02
"""Seconds of a forward pass (a backward pass takes twice that); times that of a slow stage; numbers of a small
message; steps by the stopwatch; what ranks may be late, of the step, where messages are small."""
Pass = tuple[int, str, int]
"""Stage, F or B, and microbatch."""


def gpipe(rank: int, ranks: int, count: int) -> list[Pass]:
    return [(rank, kind, batch) for kind in "FB" for batch in range(count)]


def one_forward_one_backward(rank: int, ranks: int, count: int) -> list[Pass]:
    ahead = min(count, ranks - rank)
    order = [(rank, "F", batch) for batch in range(ahead)]
    for batch in range(count):
        order += [(rank, "B", batch)] + (
            [(rank, "F", ahead + batch)] if ahead + batch < count else []
        )
    return order


def interleave_passes(rank: int, ranks: int, count: int) -> list[Pass]:
    """Of two stages on each rank (Narayanan and others, SC 2021, section 2.2), of microbatches in whole rounds."""
    in_round = count // max(1, count // ranks)
    ahead = min(2 * count, in_round + 2 * (ranks - 1 - rank))

    def passes(kind: str) -> list[Pass]:
        near = [number // in_round % 2 for number in range(2 * count)]
        stages = [rank + ranks * (each if kind == "F" else 1 - each) for each in near]
        return [(stage, kind, stages[:number].count(stage)) for number, stage in enumerate(stages)]

    forward, backward = passes("F"), passes("B")
    order = forward[:ahead]
    for late, early in zip(forward[ahead:], backward, strict=False):
        order += [late, early]
    return order + backward[len(forward) - ahead :]


ORDERS: dict[str, Callable[[int, int, int], list[Pass]]] = {
    "GPipe": gpipe,
    "1F1B": one_forward_one_backward,
    "Interleaved1F1B": interleave_passes,
}


def idle_seconds(
    orders: list[list[Pass]], seconds: Callable[[Pass], float], late: float = 0.0, steps: int = 3
) -> list[float]:
    """Seconds that each rank idles in a step, of all but the first, as each pass begins when its message is there.

    ``late``: seconds of a message. Every rank goes through its passes of one step after the other.
    """
    last = max(stage for order in orders for stage, _, _ in order)
    clocks, ended, first = [0.0] * len(orders), dict[tuple[int, Pass], float](), list[float]()
    for step in range(steps):
        left = [list(order) for order in orders]
        while any(left):
            for rank, order in enumerate(left):
                while order:
                    stage, kind, batch = order[0]
                    other = stage + (-1 if kind == "F" else 1)
                    needs = (step, (other, kind, batch)) if 0 <= other <= last else None
                    if needs is not None and needs not in ended:
                        break
                    arrives = 0.0 if needs is None else ended[needs] + late
                    clocks[rank] = max(clocks[rank], arrives) + seconds(order[0])
                    ended[step, order.pop(0)] = clocks[rank]
        first = first or list(clocks)
    worked = [sum(map(seconds, order)) for order in orders]
    return [(c - f) / (steps - 1) - w for c, f, w in zip(clocks, first, worked, strict=True)]


@dataclass(frozen=True)
class Pipeline:
    """A job, and what is known of it."""

    schedule: str
    ranks: int
    microbatches: int
    slow: int | None = None
    """Stage that takes twice as long."""
    message: int = SMALL
    """Numbers of 4 bytes in each."""

    @property
    def orders(self) -> list[list[Pass]]:
        return [
            ORDERS[self.schedule](rank, self.ranks, self.microbatches) for rank in range(self.ranks)
        ]

    def seconds(self, one: Pass) -> float:
        return FORWARD * (1 if one[1] == "F" else 2) * (SLOW if one[0] == self.slow else 1.0)

    @property
    def expected_idle(self) -> tuple[float, float]:
        """(the schedule's part, the bubble), seconds of a step."""
        passes = [one for order in self.orders for one in order]
        mean = {
            kind: float(np.mean([self.seconds(one) for one in passes if one[1] == kind]))
            for kind in "FB"
        }
        even, real = (
            idle_seconds(self.orders, each) for each in (lambda one: mean[one[1]], self.seconds)
        )
        return float(np.mean(even)), float(np.mean(real))

    @property
    def job(self) -> tuple[object, ...]:
        slow = () if self.slow is None else ("--slow", self.slow)
        size = ("--microbatches", self.microbatches, "--seconds", FORWARD, "--width", self.message)
        return (SCRIPT, "--schedule", f"Schedule{self.schedule}", *size, *slow)

    def __str__(self) -> str:
        slow = "" if self.slow is None else f", stage {self.slow} slow"
        large = "" if self.message == SMALL else f", messages of {4 * self.message / 1e6:g} MB"
        return f"{self.schedule}, {self.ranks} ranks, {self.microbatches} microbatches{slow}{large}"


PIPELINES = (
    Pipeline("GPipe", 2, 1),
    Pipeline("GPipe", 4, 4),
    Pipeline("GPipe", 8, 8),
    Pipeline("GPipe", 4, 8, slow=0),
    Pipeline("1F1B", 2, 2),
    Pipeline("1F1B", 4, 8),
    Pipeline("1F1B", 8, 32),
    Pipeline("1F1B", 4, 8, slow=2),
    Pipeline("1F1B", 8, 8, slow=3),
    Pipeline("Interleaved1F1B", 2, 4),
    Pipeline("Interleaved1F1B", 4, 8),
    Pipeline("Interleaved1F1B", 4, 8, slow=5),
    Pipeline("GPipe", 4, 4, message=50_000),
    Pipeline("1F1B", 4, 8, message=25_000),
    Pipeline("1F1B", 2, 8, slow=1, message=50_000),
    Pipeline("Interleaved1F1B", 2, 4, message=25_000),
    Pipeline("1F1B", 8, 8, message=25_000),
)


@dataclass(frozen=True)
class Found:
    """Of one job, seconds of a step."""

    pipeline: Pipeline
    step: float
    bubble: Bubble
    """As Stash has it."""
    late: float | None
    """By the stopwatch; None where messages are small."""

    @property
    def errors(self) -> tuple[float, float, float | None]:
        """Of the schedule's part, the bubble and what is late: hundredths of the step."""
        even, real = self.pipeline.expected_idle
        late = None if self.late is None else self.bubble.late - self.late
        return tuple(  # type: ignore[return-value]
            None if each is None else 100 * each / self.step
            for each in (self.bubble.schedule - even, self.bubble.seconds - real, late)
        )

    @property
    def right(self) -> bool:
        """Whether the cause is."""
        large = self.bubble.late > BESIDE * self.step
        return self.bubble.slowest_stage == self.pipeline.slow and large == (self.late is not None)


def measure(pipeline: Pipeline, budget: float, folder: Path) -> Found:
    """One profile, and two runs with the stopwatch where messages are large; needs root.

    Raises RuntimeError with what was printed.
    """
    cluster = Cluster(2, network="40mbit", interconnect=None, ranks=pipeline.ranks)
    with cluster.made() as bed:
        late = None
        if pipeline.message != SMALL:
            jobs = pipeline.job, replace(pipeline, message=SMALL).job
            large, small = (
                number(run_plain(bed, cluster, job, STEPS), "a step takes") for job in jobs
            )
            late = large - small
        breakdown = attribute(run_profile(bed, cluster, pipeline.job, budget, folder))
    if breakdown.seen is None or breakdown.seen.bubble is None:
        raise RuntimeError(f"{pipeline}: no bubble was seen")
    return Found(pipeline, breakdown.step_seconds, breakdown.seen.bubble, late)


def rows(words: str, budget: float) -> Iterator[list[object]]:
    errors, right = defaultdict[str, list[float]](list), list[bool]()
    for pipeline in PIPELINES:
        if words not in str(pipeline):
            continue
        with tempfile.TemporaryDirectory() as name:
            found = measure(pipeline, budget, Path(name) / "run")
        even, real = pipeline.expected_idle
        for kind, error in zip(("schedule", "bubble", "late"), found.errors, strict=True):
            errors[kind] += [] if error is None else [error]
        right.append(found.right)
        late = "" if found.late is None else f"{found.late * 1e3:.0f}"
        yield [
            pipeline,
            f"{found.step * 1e3:.0f}",
            f"{even * 1e3:.0f}, {real * 1e3:.0f}",
            late,
            f"{found.bubble.schedule * 1e3:.0f}, {found.bubble.seconds * 1e3:.0f}",
            f"{found.bubble.late * 1e3:.0f}",
            ", ".join(f"{each:+.1f}" for each in found.errors if each is not None),
            "yes" if found.right else "**no**",
        ]
    largest = ", ".join(
        f"{kind} {max(map(abs, each)):.1f}" for kind, each in errors.items() if each
    )
    yield [
        f"{len(right)} pipelines, largest error",
        *[""] * 5,
        largest,
        f"{sum(right)} of {len(right)}",
    ]


if __name__ == "__main__":
    taken = arguments(
        __doc__,
        words=([""], "part of a pipeline's description"),
        budget=(12.0, "seconds of each profile"),
    )
    report()
    heads = (
        "pipeline",
        "step, ms",
        "by hand: schedule, bubble",
        "late by stopwatch",
        "by Stash",
        "late",
        "errors, points",
        "cause right",
    )
    show(heads, rows(" ".join(taken.words), taken.budget))
