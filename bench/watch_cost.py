"""What watching costs: the training thread, beside untouched launches, and the watcher."""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.machine import run
from bench.table import table
from stash.measure.protocol import stamped
from stash.measure.protocol.stamped import StepRing, StepStage
from stash.monitor.records import Header, RecordWriter
from stash.monitor.watch_state import WatchOptions
from stash.monitor.watcher import POLL_SECONDS, NodeWatcher

_PAIRS = 5
"""Of launches, of each loop."""
_JOB = """
import sys, time, torch
from torch.utils.data import DataLoader, TensorDataset
out, extra, steps = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
loader, began = DataLoader(TensorDataset(torch.randn(16, 8)), batch_size=4), 0.0
number = 0
while number < steps:
    for (batch,) in loader:
        if number == steps // 10:
            began = time.thread_time()
        number += 1
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        if extra:
            time.sleep(extra)
print((time.thread_time() - began) / (steps - steps // 10), file=open(out, "w"))
"""
_LOOPS = (("0.1 ms", 0.0, 10_000), ("10 ms", 0.01, 1000))
"""A step, its seconds of sleep, and steps."""


def launch(folder: Path, extra: float, steps: int, *before: str) -> float:
    """Processor time of a step of the training thread, in microseconds."""
    (folder / "job.py").write_text(_JOB)
    run((sys.executable, *before, "job.py", "out", str(extra), str(steps)), folder)
    return float((folder / "out").read_text()) * 1e6


def watched_cost() -> str:
    """Processor time of the training thread that watching adds to a step, in launches that take turns."""
    rows, watch = [], ("-m", "stash", "watch", "-o", "job.watch.jsonl")
    for name, extra, steps in _LOOPS:
        spent: dict[tuple[str, ...], list[float]] = {(): [], watch: []}
        for pair in range(_PAIRS):
            for before in list(spent)[:: 1 if pair % 2 else -1]:
                with tempfile.TemporaryDirectory() as folder:
                    spent[before].append(launch(Path(folder), extra, steps, *before))
        more = np.subtract(spent[watch], spent[()])
        cells = (
            f"{np.median(spent[()]):.0f} µs",
            f"{np.median(more):.1f} µs",
            f"{more.min():.0f} to {more.max():.0f} µs",
        )
        rows.append([name, *cells])
    return table(["a step of", "untouched, processor time", "added by watching", "range"], rows)


def watcher_cost() -> str:
    """Of the watcher: its core and memory with 8 ranks at 20 steps a second, and 1,024 ranks' window."""
    draw = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as place:
        folder, now = Path(place), [time.time()]
        rings = [
            StepRing(folder / f"ring.{rank}.{os.getpid()}", rank, 8, rank, 0) for rank in range(8)
        ]
        header = Header(id="x", stash_version="x", began=now[0], job="job")
        watcher = NodeWatcher(
            folder,
            RecordWriter(folder / "r.watch.jsonl", header),
            header,
            WatchOptions(),
            clock=lambda: now[0],
        )
        polls, each = int(60 / POLL_SECONDS), int(20 * POLL_SECONDS)
        spent = 0.0
        for poll in range(polls):
            for step in range(poll * each, (poll + 1) * each):
                for ring in rings:
                    ring.write(_row(step, draw))
            now[0] += POLL_SECONDS
            before = time.process_time()
            watcher.poll()
            spent += time.process_time() - before
        size = (folder / "r.watch.jsonl").stat().st_size * 60
    rows = [
        ["8 ranks, 20 steps a second: of a core", f"{spent / (polls * POLL_SECONDS):.2%}"],
        [
            "memory of this process with all of that",
            f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB",
        ],
        ["record, an hour", f"{size / 1e6:.2f} MB"],
    ]
    return table(["watcher", ""], rows)


def _row(step: int, draw: np.random.Generator) -> list[float]:
    row = [0.0] * stamped.FIELDS
    row[stamped.NUMBER], row[stamped.BEGAN], row[stamped.ENDED] = (
        step,
        step * 0.05,
        step * 0.05 + 0.05,
    )
    for stage in (StepStage.FORWARD, StepStage.BACKWARD, StepStage.INPUT, StepStage.EXCHANGE):
        row[stage] = float(draw.normal(0.0125, 0.0005))
    row[stamped.GRADIENTS] = 1.0
    return row
