"""Does ``stash compare`` raise false alarms, and what does it see? ``python -m bench.comparison``.

One emulated job whose steps vary, profiled again and again: pairs of equal jobs must be called slower or faster in at
most one pair of twenty, line by line. Then the same job with one stall longer by 2, 5 and 10 % of the step: how often
it is seen, beside what a comparison of two means, without intervals, would have found in the same pairs.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.machine import arguments
from bench.table import report, table
from bench.truth.cases import BIG, COMPUTE, VARIED, Case, Paced
from bench.truth.jobs import cluster, profile
from stash.analysis.attribution import attribute
from stash.analysis.breakdown import Breakdown
from stash.analysis.comparison import FASTER, SLOWER, compare

BASE = replace(VARIED, name="equal", jitter=0.05)
STEP = COMPUTE * 2.3
"""Of the job above, in seconds."""
SHARES = (0.02, 0.05, 0.10)
NAIVE = 0.02
"""What two means must differ by, as a share of the step, for somebody without intervals to call one slower."""
Pair = tuple[list[Breakdown], list[Breakdown]]


def longer(share: float) -> Case:
    """The job with its exchange longer by this share of the step."""
    return replace(BASE, name=f"exchange +{share:.0%}", paced=Paced(BIG / (0.5 * COMPUTE + share * STEP)))


def profiled(case: Case, budget: float) -> Breakdown:
    """One profile of a case, on a cluster of its own."""
    with tempfile.TemporaryDirectory() as folder, cluster(case) as (bed, _):
        found = attribute(profile(case, Path(folder), bed, budget, 2.0))
    print(f"{case.name}: {found.step.value * 1e3:.1f} ms", file=sys.stderr, flush=True)
    return found


def verdicts(pairs: Sequence[Pair], line: str) -> str:
    """How many pairs are called slower and faster in a line."""
    words = [found.verdict for before, after in pairs if (found := compare(before, after).line(line)) is not None]
    return f"{words.count(SLOWER)} slower, {words.count(FASTER)} faster of {len(words)}"


def naive(pairs: Sequence[Pair]) -> str:
    """The same of two means of the step alone."""
    apart = [after[0].step.value / before[0].step.value - 1 for before, after in pairs]
    return f"{sum(one > NAIVE for one in apart)} slower, {sum(one < -NAIVE for one in apart)} faster of {len(apart)}"


def spread(found: Sequence[Breakdown]) -> str:
    """Between launches: of the step, beyond what its intervals explain, as a share of it."""
    steps = np.array([run.step.value for run in found])
    arms = np.array([run.step.half_width or 0.0 for run in found]) / 1.96
    beyond = steps.var(ddof=1) - np.mean(arms**2)
    known = f"{np.sqrt(beyond) / steps.mean():.2%}" if beyond > 0 else "none beyond their own intervals"
    return f"{steps.std(ddof=1) / steps.mean():.2%} in all, {known}"


def main() -> None:
    """Profile, compare, print."""
    options = arguments(
        __doc__,
        pairs=(30, "pairs of equal jobs"),
        slowed=(10, "of them also with each slowed job"),
        budget=(6.0, "seconds of measuring per profile"),
    )
    equal: list[Breakdown] = []
    slowed: dict[float, list[Pair]] = {share: [] for share in SHARES}
    for number in range(options.pairs):  # what is compared is profiled within minutes: the machine drifts
        equal.append(profiled(BASE, options.budget))
        for share in SHARES if number < options.slowed else ():
            slowed[share].append(([equal[-1]], [profiled(longer(share), options.budget)]))
        equal.append(profiled(BASE, options.budget))
    pairs: list[Pair] = [([before], [after]) for before, after in zip(equal[::2], equal[1::2], strict=True)]
    lines = ("step", "compute", "contention", "interconnect", "prep", "fetch")
    rows = [["equal", "0%", line, verdicts(pairs, line), naive(pairs) if line == "step" else ""] for line in lines]
    for share, against in slowed.items():
        for line in ("step", "interconnect"):
            means = naive(against) if line == "step" else ""
            rows.append([f"exchange +{share:.0%}", f"{share:.0%}", line, verdicts(against, line), means])
    heads = ("job", "added, of the step", "line", "stash compare", f"two means, {NAIVE:.0%} apart")
    report(table(heads, rows), f"Between launches of the equal job, the step varies by {spread(equal)}.")


if __name__ == "__main__":
    main()
