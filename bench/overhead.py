"""What the agent costs: steps of warm blocks under Stash against the untouched script, launches interleaved.

Both train on the same cached files with real loaders and real exchange. Each pair of launches gives one ratio of
median step times; which of the two comes first alternates. The blocks' own start (drained queues) is not part of
a block's time, as it is not part of any breakdown.
"""

from __future__ import annotations

import sys

import numpy as np

from common import TASKS, Task, machine, make_data, profiled, read_all, table, untouched
from stash import stats

PAIRS = 6
STEPS = 40


def steps_under_stash(task: Task) -> float:
    profile = profiled(task, 12.0, "--rungs", "warm", "--precision", "0.01")
    times = [seconds for block in profile.blocks if block.rank == 0 for seconds in block.step_seconds]
    return float(np.median(times))


def steps_untouched(task: Task) -> float:
    seconds, _ = untouched(task, 2, True, STEPS)
    return float(np.median(seconds[5:]))


def measure(task: Task) -> list[str]:
    make_data(task)
    read_all(task.data)
    ratios = []
    for pair in range(PAIRS):
        if pair % 2:
            ours, theirs = steps_under_stash(task), steps_untouched(task)
        else:
            theirs, ours = steps_untouched(task), steps_under_stash(task)
        ratios.append(ours / theirs)
        print(
            f"{task.workload}: {ours * 1e3:.1f} ms with, {theirs * 1e3:.1f} ms without", file=sys.stderr, flush=True
        )
    mean = stats.estimate(np.array(ratios)[:, None])[0]
    low, high = ((bound or np.nan) - 1 for bound in (mean.low, mean.high))
    return [task.workload, str(PAIRS), f"{np.median(ratios) - 1:+.1%}", f"{low:+.1%} to {high:+.1%}"]


def main(names: list[str]) -> None:
    rows = [measure(TASKS[name]) for name in names or ["resnet18", "m5"]]
    print(machine(), table(["workload", "pairs", "median slow-down", "95% interval of the mean"], rows), sep="\n\n")


if __name__ == "__main__":
    main(sys.argv[1:])
