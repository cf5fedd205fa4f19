"""What the benchmarks share: the machine, untouched runs of a workload, Stash's runs, tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
import torch

from stash.core.artefact import load
from stash.core.records.profile import Profile
from stash.measure.host.describe import describe

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "data"
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
    command = [sys.executable, "-m", "stash", "dataset", "make", task.kind, str(task.data)]
    if not (task.data / "stash-dataset.json").exists():
        subprocess.run([*command, "--count", str(task.count)], check=True)


def arguments(task: Task, data: bool) -> list[str]:
    """The zoo's command line for a task, on its data or on data in memory."""
    feed = ["--data", str(task.data)] if data else ["--synthetic"]
    return ["--workload", task.workload, *feed, "--batch", str(task.batch), *task.options]


def untouched(task: Task, ranks: int, data: bool, steps: int) -> tuple[list[float], float]:
    """Train ``steps`` steps without Stash: (seconds of each step after the first, wall seconds of the launch)."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "moments.json"
        argv = [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"),
            *(str(TIMED), str(out), "stash.lab.zoo.train", *arguments(task, data), "--steps", str(steps)),
        ]
        began = time.monotonic()
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run(argv, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wall = time.monotonic() - began
        moments = np.array(json.loads(out.read_text()))
    return list(np.diff(moments)), wall


def profiled(task: Task, budget: float, *options: str, data: bool = True) -> Profile:
    """Profile a task with the command a user would type."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run.stash.json"
        feed = ["--data", str(task.data)] if data else []
        argv = [
            *(sys.executable, "-m", "stash", "profile", "--workload", task.workload, *feed),
            *("--batch", str(task.batch), "--budget", str(budget), "-o", str(out), *options, "--", *task.options),
        ]
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return load(out)


def drop_cache(folder: Path) -> None:
    """Drop the files of a folder from the page cache, as the original protocol does before its cold run."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def read_all(folder: Path) -> None:
    """Put the files of a folder into the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            path.read_bytes()


def machine() -> str:
    """One line on what this was measured on."""
    host = describe()
    gpus = f", {len(host.gpus)} x {host.gpus[0].name}" if host.gpus else ""
    return (
        f"{date.today()}, {host.cores} cores of {host.cpu}{gpus}, Linux {host.kernel}, "
        f"torch {torch.__version__}, python {sys.version.split()[0]}"
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
