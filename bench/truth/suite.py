"""Run a case of the truth suite and judge what the profile says: its errors, its causes, its intervals.

Knows what a right answer is; not how a case's truth is worked out (``cases``) or its job started (``jobs``).
"""

from __future__ import annotations

import itertools
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.truth import stopwatch
from bench.truth.cases import Case
from bench.truth.jobs import cluster, profile
from stash.advice.verdict import verdict
from stash.analysis.attribution import attribute
from stash.analysis.breakdown import Breakdown
from stash.core.records.profile import Profile

LISTED = 0.05
"""A stall below this share of the step is not expected to be named."""
NO_CAUSE = ("compute", "disturbed")
"""Parts of a step that are no stall of the job."""


@dataclass(frozen=True)
class Result:
    """One stall of one case in one run; seconds, error in points (hundredths) of the step."""

    case: str
    stall: str
    truth: float
    """Worked out by hand."""
    timed: float | None
    """By the stopwatch; ``None`` where only the hand knows, or it was not asked for."""
    estimate: float
    low: float | None
    high: float | None
    step: float
    used: float
    """Seconds from typing the command to the answer."""
    named: str
    """The stalls that the answer ranks first, as many as there are causes."""
    right: bool
    """Whether those are the causes, in their order, and the slow rank is named if there is one."""
    answered: bool = True
    """Whether there is a verdict."""

    @property
    def points(self) -> float:
        return (self.estimate - self.truth) / self.step * 100

    @property
    def timed_points(self) -> float | None:
        """The error against the stopwatch."""
        return None if self.timed is None else (self.estimate - self.timed) / self.step * 100

    def holds(self, truth: float | None) -> bool | None:
        """Whether the interval holds that truth; ``None`` without an interval, or without the truth."""
        if self.low is None or self.high is None or truth is None:
            return None
        return self.low <= truth <= self.high


def run(case: Case, budget: float, precision: float = 1.0, timed: bool = False) -> list[Result]:
    """Profile one case; raises RuntimeError with what was printed if there is no answer."""
    with tempfile.TemporaryDirectory() as folder, cluster(case) as (bed, rates):
        began = time.monotonic()
        found = profile(case, Path(folder), bed, budget, precision)
        used = time.monotonic() - began
        truth = case.truth(case, rates)
        second = stopwatch.stalls(case, bed, truth) if timed else {}
    return judge(case, truth, second, found, used)


def judge(
    case: Case, truth: dict[str, float], timed: dict[str, float], found: Profile, used: float
) -> list[Result]:
    """Compare a profile with the truth; a stall that is true but was not measured is an error, not left out."""
    breakdown = attribute(found)
    advice = verdict(breakdown, found)
    ranked, right = causes(case, breakdown, advice.stall)
    results = []
    for name, seconds in truth.items():
        stall = breakdown.stall(name)
        if stall is None:
            why = next(
                (missing.why for missing in breakdown.skipped if missing.name == name), "left out"
            )
            raise RuntimeError(f"{case.name}: {name} is unknown: {why}")
        answer = (stall.seconds, stall.low, stall.high, breakdown.step_seconds)
        judged = (", ".join(ranked), right, advice.kind not in ("cannot tell", "estimate"))
        results.append(Result(case.name, name, seconds, timed.get(name), *answer, used, *judged))
    return results


def causes(case: Case, breakdown: Breakdown, answer: str | None) -> tuple[list[str], bool]:
    """The stalls above the noise, largest first, and whether they (and the slow rank) are what was injected.

    The verdict, which is the stall ``answer`` (``None``: unknown), must name the first of them, or compute where
    nothing was injected.
    """
    stalls = [
        s
        for s in breakdown.stalls
        if s.name not in NO_CAUSE and s.share > LISTED and not s.within_noise
    ]
    ranked = [s.name for s in sorted(stalls, key=lambda s: -s.seconds)][: max(1, len(case.cause))]
    rank = breakdown.slow_rank.rank if breakdown.slow_rank else None
    right = (
        tuple(ranked) == case.cause
        and rank == case.slow_rank
        and answer == (*case.cause, "compute")[0]
    )
    return [*ranked, *([f"rank {rank}"] if rank is not None else [])], right


def faults(results: Sequence[Result], tolerance: float = 10.0, busy: bool = False) -> list[str]:
    """What is wrong with an answer even on a noisy machine: errors above ``tolerance`` points, a wrong cause.

    ``busy``: where other work leaves no verdict, and says so, that is none, nor is an error within its own interval;
    nor is the order of the right causes where their intervals overlap.
    """
    open_ = busy and not any(r.answered for r in results)
    is_order_open = open_ or (busy and _is_order_open(results))
    far = [
        f"{r.stall} {r.points:+.1f} points"
        for r in results
        if abs(r.points) > tolerance and not (open_ and r.holds(r.truth))
    ]
    wrong = [r.named or "nothing" for r in results if not (r.right or is_order_open)]
    return far + [f"named {named}" for named in sorted(set(wrong))]


def _is_order_open(results: Sequence[Result]) -> bool:
    """Whether the largest stalls in truth are named, and in another order only where their intervals overlap."""
    words = results[0].named.split(", ") if results else []
    named = [name for name in words if not name.startswith("rank ")]
    stalls = [r for r in results if r.stall not in NO_CAUSE]
    largest = sorted(stalls, key=lambda r: -r.truth)[: len(named)]
    in_truth = [r.stall for r in largest]
    if named == in_truth or sorted(named) != sorted(in_truth):
        return False  # something else is wrong than the order
    return all(
        larger.estimate >= less.estimate or (larger.high or 0.0) >= (less.low or 0.0)
        for larger, less in itertools.combinations(largest, 2)
    )


def load_results(path: Path) -> list[Result]:
    """Results of ``--save``."""
    return [Result(**json.loads(line)) for line in path.read_text().splitlines()]
