"""Workloads of the zoo at a size for two CPU cores: untouched under a stopwatch, and under Stash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.machine import DATA, ROOT, STASH
from stash.core.artefact import load
from stash.core.records.profile import Profile

TIMED = ROOT / "bench" / "timed.py"
"""Runs another module with a stopwatch; started as a file, so that it needs no particular folder."""
RANKS = 2


@dataclass(frozen=True)
class Task:
    """A workload at a size that two CPU cores can train."""

    workload: str
    kind: str
    count: int
    batch: int
    options: tuple[str, ...] = ()

    @property
    def data(self) -> Path:
        return DATA / self.kind


TASKS = {
    "resnet18": Task("resnet18", "images", 600, 8, ("--image-size", "112")),
    "squeezenet1_0": Task("squeezenet1_0", "images", 600, 8, ("--image-size", "112")),
    "m5": Task("m5", "audio", 4000, 32),
    "dlrm": Task("dlrm", "clicks", 100_000, 256),
}


def make_data(task: Task) -> None:
    """Make the task's data set if it is not there yet."""
    if not (task.data / "stash-dataset.json").exists():
        command = [*STASH, "lab", "dataset", "make", task.kind, str(task.data), "--count", str(task.count)]
        subprocess.run(command, check=True)


def untouched(task: Task, ranks: int, data: bool, steps: int) -> tuple[list[float], float]:
    """Train without Stash, on the task's data or on data in memory.

    Returns the seconds of each step after the first, and the wall seconds of the launch.
    """
    feed = ["--data", str(task.data)] if data else ["--synthetic"]
    job = ["--workload", task.workload, *feed, "--batch", str(task.batch), *task.options, "--steps", str(steps)]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "moments.json"
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        began = time.monotonic()
        _quietly([*launch, str(TIMED), str(out), "stash.lab.zoo.train", *job], {"OMP_NUM_THREADS": "1"})
        wall = time.monotonic() - began
        return list(np.diff(json.loads(out.read_text()))), wall


def profiled(task: Task, budget: float, *options: str) -> Profile:
    """Profile a task on its data with the command a user would type."""
    job = ["--workload", task.workload, "--data", str(task.data), "--batch", str(task.batch)]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run.stash.json"
        _quietly([*STASH, "profile", *job, "--budget", str(budget), "-o", str(out), *options, "--", *task.options])
        return load(out)


def _quietly(command: list[str], environment: dict[str, str] | None = None) -> None:
    quiet = subprocess.DEVNULL
    subprocess.run(command, check=True, env={**os.environ, **(environment or {})}, stdout=quiet, stderr=quiet)


def drop_cache(folder: Path) -> None:
    """Drop the files of a folder from the page cache, as the original protocol does before its cold run."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_all(folder: Path) -> None:
    """Put the files of a folder into the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            path.read_bytes()
