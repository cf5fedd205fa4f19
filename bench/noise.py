"""Record how even a machine is: two processes, a core each, take the same small step over and over.

``python -m bench.noise --seconds 300 --out bench/data/noise.npz`` keeps the seconds of every step of both, and a line
on the machine. ``bench.schedule_design`` lets simulated jobs run on a machine that is as uneven.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from pathlib import Path

import numpy as np

from bench.common import machine

PROCESSES = 2
SIZE = 384
"""Rows and columns of the matrices that a step multiplies, ``PRODUCTS`` times: about 10 ms on a core."""
PRODUCTS = 4


def steps(core: int, seconds: float, results: multiprocessing.Queue[np.ndarray]) -> None:
    """Take steps on one core; puts the moments at which they ended."""
    os.sched_setaffinity(0, [core])
    import torch

    torch.set_num_threads(1)
    left = right = torch.rand(SIZE, SIZE)
    moments = [time.perf_counter()]
    end = moments[0] + seconds
    while moments[-1] < end:
        for _ in range(PRODUCTS):
            left = (left @ right) / SIZE
        moments.append(time.perf_counter())
    results.put(np.array(moments))


def record(seconds: float) -> np.ndarray:
    """Seconds of each step, ``[process, step]``; all processes are cut to the fewest steps."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    cores = sorted(os.sched_getaffinity(0))[:PROCESSES]
    working = [context.Process(target=steps, args=(core, seconds, results)) for core in cores]
    for process in working:
        process.start()
    moments = [results.get() for _ in working]
    for process in working:
        process.join()
    durations = [np.diff(each) for each in moments]
    fewest = min(map(len, durations))
    return np.array([each[:fewest] for each in durations], dtype=np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    durations = record(args.seconds)
    np.savez_compressed(args.out, seconds=durations, machine=np.array(machine()))
    print(f"{durations.shape[1]} steps of {np.median(durations) * 1e3:.1f} ms, {args.out.stat().st_size >> 10} KiB")


if __name__ == "__main__":
    main()
