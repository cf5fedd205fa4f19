"""Seconds until every stall is known: Stash against the protocol of the original paper.

The original needs one launch per condition, one after the other: one device on synthetic data, all devices on
synthetic data, real data with a cold cache, real data cached; each half an epoch of ImageNet. Half an epoch is
computed from the measured step time, not run. The *shortest equally precise* run repeats short launches of
the four conditions until the interval of every difference is as narrow as Stash's; after ``CYCLES`` cycles the
number still needed follows from the width shrinking with the square root of their number.

What a machine allows at all: how far means of half a minute of the untouched job lie apart. No method that measures
for so long knows the step of the next half minute more closely.
"""

from __future__ import annotations

import numpy as np
from scipy.special import stdtrit

from bench.machine import arguments
from bench.table import progress, report, table
from bench.workloads import RANKS, TASKS, Task, drop_cache, make_data, profiled, read_all, untouched
from stash.analysis.attribution import attribute

CYCLES = 3
WARM_UP = 5
LAUNCH_SECONDS = 8.0
IMAGENET = 1_281_166
PRECISION, BUDGET = 2.0, 90.0
WATCHED, WINDOWS = 30.0, 5
"""Seconds of a mean, and how many of them."""


def conditions(task: Task, steps: int) -> tuple[list[float], float]:
    """One cycle of the original protocol: mean step seconds of its four runs, and the wall seconds of all."""
    means, wall = [], 0.0
    for ranks, data, cold in ((1, False, False), (RANKS, False, False), (RANKS, True, True), (RANKS, True, False)):
        if data:
            (drop_cache if cold else read_all)(task.data)
        seconds, launch = untouched(task, ranks, data, steps)
        means.append(float(np.mean(seconds[WARM_UP - 1 :])))
        wall += launch
    return means, wall


def widths(cycles: np.ndarray) -> np.ndarray:
    """Half-widths of the 95 % intervals of the original's differences, conditions measured independently."""
    count = len(cycles)
    variance = cycles.var(axis=0, ddof=1) / count
    pairs = ((0, 0), (1, 0), (3, 1), (2, 3))
    spread = np.array([variance[a] + (variance[b] if a != b else 0.0) for a, b in pairs])
    return np.asarray(stdtrit(2 * (count - 1), 0.975) * np.sqrt(spread))


def allowed(seconds: np.ndarray) -> float:
    """Where 95 % of means of ``WATCHED`` seconds lie, +/- as a fraction, by the ``seconds`` of steps in turn."""
    ends = np.cumsum(seconds)
    whole = int(ends[-1] / WATCHED)
    means = [
        part.mean() for part in np.split(seconds, np.searchsorted(ends, WATCHED * np.arange(1, whole + 1)))[:whole]
    ]
    return float(stdtrit(whole - 1, 0.975) * np.std(means, ddof=1) / np.mean(means))


def measure(task: Task) -> list[str]:
    make_data(task)
    profile = profiled(task, BUDGET, "--noise", str(PRECISION))
    breakdown = attribute(profile)
    halves = [(s.high - s.low) / 2 for s in breakdown.stalls if s.high is not None and s.low is not None]
    reached = max(halves) / breakdown.step_seconds
    warm = next(b for b in profile.blocks if b.rung == "warm")
    steps = WARM_UP + max(10, round(LAUNCH_SECONDS / (warm.seconds / warm.steps)))
    runs = [conditions(task, steps) for _ in range(CYCLES)]
    cycles, wall = np.array([means for means, _ in runs]), float(np.mean([seconds for _, seconds in runs]))
    worst = float(widths(cycles).max()) / cycles[:, 2].mean()
    read_all(task.data)
    seconds, _ = untouched(task, RANKS, True, WARM_UP + round(WATCHED * (WINDOWS + 0.5) / cycles[:, 2].mean()))
    needed = max(2.0, CYCLES * (worst / reached) ** 2)
    equal = needed * wall
    half_epoch = sum(IMAGENET / task.batch / RANKS / 2 * cycles.mean(axis=0))
    return [
        task.workload,
        f"{breakdown.step_seconds * 1e3:.0f} ms",
        f"{profile.elapsed_seconds:.0f} s ({breakdown.rounds} rounds)",
        f"{reached:.1%}",
        f"{allowed(np.array(seconds[WARM_UP - 1 :])):.1%}",
        f"{wall * CYCLES:.0f} s",
        f"{worst:.1%}",
        f"{equal:.0f} s",
        f"{equal / profile.elapsed_seconds:.1f} x",
        f"{half_epoch / 3600:.0f} h",
    ]


def main() -> None:
    names = arguments(__doc__, workloads=(list(TASKS), "of them")).workloads
    heads = [
        "workload", "step", "Stash", "widest interval", f"means of {WATCHED:.0f} s untouched",
        f"original, {CYCLES} short cycles", "its widest interval",
        "original, equally precise (computed)", "ratio", "original, half epochs (computed)",
    ]  # fmt: skip
    rows = []
    for name in names:
        rows.append(measure(TASKS[name]))
        progress(*rows[-1])
    report(table(heads, rows))


if __name__ == "__main__":
    main()
