"""Record how the steps of a job vary on a machine: ``python -m bench.noise.steps --minutes 6 --first --out FILE``.

Each rank trains a small convolutional network on one core, unsynchronised, as ranks do under ``crowd``. The file has
one line for every few steps: what they took on each rank, in thousandths of that rank's median. Its first lines,
comments, say when, where and by which command it was made.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch

from bench.machine import machine
from bench.recorded import write_text

_WARM_UP = 20
TWO_RANKS = Path(__file__).with_name("two_ranks.csv.gz")
"""Four steps to a line, of two ranks side by side, on a machine of two cores."""


def _train(seconds: float, first: bool, out: Connection) -> None:
    if first:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.Conv2d(32, 32, 3), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(32, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch, wanted = torch.randn(2, 3, 48, 48), torch.randint(10, (2,))
    steps = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(batch), wanted).backward()
        optimizer.step()
        steps.append(time.monotonic() - began)
        if first:
            time.sleep(steps[-1] / 2)
    out.send(np.array(steps[_WARM_UP:]))


def record(seconds: float, ranks: int, first: bool) -> np.ndarray:
    """Seconds of each step of each rank, ``[step, rank]``, trained side by side; ``first`` goes before other work."""
    context = multiprocessing.get_context("spawn")
    ends = []
    for _ in range(ranks):
        here, there = context.Pipe()
        context.Process(target=_train, args=(seconds, first, there)).start()
        ends.append(here)
    series = [end.recv() for end in ends]
    return np.column_stack([steps[: min(map(len, series))] for steps in series])


def main() -> None:
    """Record and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=6)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--together", type=int, default=16, help="steps to a line: a step of a larger model")
    parser.add_argument(
        "--first",
        action="store_true",
        help="at real-time priority, pausing between steps: no noise of other jobs (root)",
    )
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    steps = record(60 * options.minutes, options.ranks, options.first)
    together = options.together
    steps = steps[: len(steps) // together * together].reshape(-1, together, options.ranks).mean(axis=1)
    medians = np.median(steps, axis=0)
    heads = (
        " ".join(["python -m bench.noise.steps", *sys.argv[1:]]),
        machine(),
        f"thousandths of each rank's median step ({' and '.join(f'{one * 1e3:.1f} ms' for one in medians)})",
    )
    lines = [
        *(f"# {head}" for head in heads),
        *(",".join(map(str, line)) for line in np.rint(1000 * steps / medians).astype(int)),
    ]
    write_text(options.out, "\n".join(lines) + "\n")
    print(f"{len(steps)} steps of {steps.shape[1]} ranks in {options.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
