"""``train.py``, which ends in a way of its own once a file ``now`` is there: ``ending.py HOW [--rank N] [WORDS]``."""

import multiprocessing.shared_memory
import os
import runpy
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook

HERE = Path(__file__).parent


def raises_exit():
    raise SystemExit(3)


def fails():
    raise ValueError("loss is nan")


ENDS = {
    "exit": lambda: sys.exit(3),
    "exits-with-words": lambda: sys.exit("fatal: no licence"),
    "raises-exit": raises_exit,
    "exits-well": lambda: sys.exit(0),
    "fails": fails,
    "leaves-at-once": lambda: os._exit(3),
    "aborts": os.abort,
    "never": lambda: None,
}


def take(option):
    """Whether it is among the words, which are train.py's but for that."""
    found = option in words
    if found:
        words.remove(option)
    return found


how, *words = sys.argv[1:]
rank = None
if words[:1] == ["--rank"]:
    rank, words = words[1], words[2:]


def after_step(*_):
    if (HERE / "now").exists() and rank in (None, os.environ.get("RANK")):
        ENDS[how]()


if take("--deaf"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if take("--shared"):
    shared = multiprocessing.shared_memory.SharedMemory(create=True, size=1 << 16)
cleans_up = take("--cleans-up")
register_optimizer_step_post_hook(after_step)
sys.argv = ["train.py", *words]
torch.manual_seed(0)
try:
    runpy.run_path(str(HERE / "train.py"), run_name="__main__")
finally:
    if cleans_up and dist.is_initialized():
        dist.destroy_process_group()
