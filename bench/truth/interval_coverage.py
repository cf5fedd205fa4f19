"""How often 95 % intervals hold the truth: ``python -m bench.truth.interval_coverage [--runs N]``.

The truth suite's jobs repeat each step to a fraction of a millisecond, and then an interval tells the launch, not
the noise. So here the steps vary, by 5 and by 15 % (standard deviation), as those of real jobs do, and the same
profile is taken again and again. The truth is worked out by hand; what a step costs besides what is injected is far
below the width of these intervals.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import replace

import numpy as np

from bench.machine import arguments
from bench.table import report, table
from bench.truth.cases import VARIED
from bench.truth.suite import Result, run

JOBS = tuple(replace(VARIED, name=f"steps vary by {jitter:.0%}", jitter=jitter) for jitter in (0.05, 0.15))


def rows(results: list[Result]) -> list[list[str]]:
    """One row per job and stall: the mean estimate, the mean half-width, the fraction of intervals that hold."""
    groups: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        groups[result.case, result.stall].append(result)
        groups[result.case, "all"].append(result)
    made = []
    for (case, stall), group in groups.items():
        held = [result.holds(result.truth) for result in group]
        half = [(r.high - r.low) / 2 for r in group if r.low is not None and r.high is not None]
        mean = f"{np.mean([r.estimate for r in group]) * 1e3:.1f}" if stall != "all" else ""
        truth = f"{group[0].truth * 1e3:.1f}" if stall != "all" else ""
        made.append([
            case, stall, truth, mean, f"{np.mean(half) * 1e3:.2f}",
            f"{np.mean([one for one in held if one is not None]):.0%} of {len(held)}",
        ])  # fmt: skip
    return made


def main() -> None:
    """Run, print."""
    options = arguments(__doc__, runs=(20, "profiles of each job"), budget=(8.0, "seconds of measuring per profile"))
    results: list[Result] = []
    for number in range(options.runs):
        for job in JOBS:
            results += run(job, options.budget)
            held = [r.holds(r.truth) for r in results]
            print(f"run {number + 1}: {np.mean([h for h in held if h is not None]):.0%} hold", file=sys.stderr)
    heads = ("job", "stall", "truth (ms)", "mean estimate (ms)", "mean half-width (ms)", "intervals that hold it")
    report(table(heads, rows(results)))


if __name__ == "__main__":
    main()
