"""Run a Python module untouched but for a stopwatch: ``timed.py OUT MODULE ARGS…`` writes its step times.

The stopwatch is PyTorch's own optimizer hook and a list; rank 0 writes ``OUT``, a JSON list of the moments
(seconds) at which optimizer steps ended, and ``OUT.waits``, how long the loop had waited for its loaders by then.
Ranks are pinned to their share of the cores, as Stash pins them on CPUs, so that a comparison is not one of
placements; ``TIMED_UNPINNED`` in the environment leaves them alone.
"""

import atexit
import json
import os
import runpy
import sys
import time
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data.dataloader import _BaseDataLoaderIter

out, module, *arguments = sys.argv[1:]
rank, ranks = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
cores = sorted(os.sched_getaffinity(0))
share = len(cores) // max(ranks, 2)
if not torch.cuda.is_available() and "TIMED_UNPINNED" not in os.environ:
    os.sched_setaffinity(0, cores[rank * share : (rank + 1) * share])
moments: list[float] = []
waits: list[float] = []
waited = 0.0
next_batch = _BaseDataLoaderIter.__next__


def count_step(*_):
    moments.append(time.perf_counter())
    waits.append(waited)


def next_timed(loader):
    global waited
    began = time.perf_counter()
    try:
        return next_batch(loader)
    finally:
        waited += time.perf_counter() - began


def write():
    Path(f"{out}.waits").write_text(json.dumps(waits))
    Path(out).write_text(json.dumps(moments))


register_optimizer_step_post_hook(count_step)
_BaseDataLoaderIter.__next__ = next_timed
if os.environ.get("RANK", "0") == "0":
    atexit.register(write)
sys.argv = [module, *arguments]
runpy.run_module(module, run_name="__main__", alter_sys=True)
