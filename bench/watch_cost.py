"""What watching costs: the training thread, beside untouched and TraceML's launches, and the watcher."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.machine import ROOT
from bench.table import table
from stash.measure.protocol import stamped
from stash.measure.protocol.stamped import StepRing, StepStage
from stash.monitor.records import Header, RecordWriter
from stash.monitor.watch_state import WatchOptions
from stash.monitor.watcher import POLL_SECONDS, NodeWatcher

_PAIRS, _CALLS = 41, 20_000
_JOB = """
import contextlib, sys, time, torch
from torch.utils.data import DataLoader, TensorDataset
out, kind, extra, steps, tool = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
traced = lambda model: contextlib.nullcontext()
if tool == "traceml":
    import traceml_ai
    traceml_ai.init(mode="auto")
    traced = traceml_ai.trace_step
torch.set_num_threads(1)
def layer(wide, out, size, by):
    return torch.nn.Conv2d(wide, out, size, by, size // 2, bias=False), torch.nn.BatchNorm2d(out)
class Block(torch.nn.Module):
    def __init__(self, wide, out):
        super().__init__()
        by = out // wide
        self.main = torch.nn.Sequential(*layer(wide, out, 3, by), torch.nn.ReLU(), *layer(out, out, 3, 1))
        self.beside = torch.nn.Sequential(*layer(wide, out, 1, by)) if by > 1 else torch.nn.Identity()
    def forward(self, x):
        return torch.relu(self.main(x) + self.beside(x))
if kind == "resnet":
    widths = [64, 64, 64, 128, 128, 256, 256, 512, 512]
    model = torch.nn.Sequential(
        *layer(3, 64, 7, 2), torch.nn.ReLU(), torch.nn.MaxPool2d(3, 2, 1),
        *(Block(wide, out) for wide, out in zip(widths, widths[1:])),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(512, 10),
    )
    data = torch.randn(8, 3, 64, 64)
else:
    model, data = torch.nn.Linear(8, 8), torch.randn(4, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
data = torch.cat([data] * 4)
loader, began, wall = DataLoader(TensorDataset(data), batch_size=len(data) // 4), 0.0, 0.0
number = 0
while number < steps:
    for (batch,) in loader:
        if number == steps // 10:
            began, wall = time.thread_time(), time.perf_counter()
        number += 1
        with traced(model):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
        if extra:
            time.sleep(extra)
left = steps - steps // 10
print((time.thread_time() - began) / left, (time.perf_counter() - wall) / left, file=open(out, "w"))
"""
_LOOPS = (("0.1 ms", "linear", 0.0, 10_000), ("10 ms", "linear", 0.01, 1000), ("ResNet-18", "resnet", 0.0, 120))


def _launch(folder: Path, kind: str, words: tuple[str, ...], traceml: str, number: int) -> float:
    """Processor time of a step of the training thread, in microseconds."""
    script, out = folder / "job.py", folder / "out"
    script.write_text(_JOB)
    job = [str(script), str(out), *words, kind]
    watch = ["-m", "stash", "watch", "-o", f"{folder}/{number}.watch.jsonl"]
    command = {"untouched": [sys.executable, *job], "watched": [sys.executable, *watch, *job]}
    if traceml:
        tool = str(Path(traceml).parent / "traceml")
        run = ["run", "--mode", "summary", "--logs-dir", str(folder / "logs"), "--run-name", str(number), job[0]]
        command |= {"untouched by TraceML's Python": [traceml, *job], "traceml": [tool, *run, "--args", *job[1:]]}
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run(command[kind], check=True, capture_output=True, env=environment, cwd=folder)
    return float(out.read_text().split()[0]) * 1e6


def cost(pairs: int, traceml: str = "") -> str:
    """Processor time of the training thread that watching adds to a step, in launches that take turns."""
    kinds = ["untouched", "watched", *(["traceml"] if traceml else [])]
    rows = []
    for name, model, extra, steps in _LOOPS:
        with tempfile.TemporaryDirectory() as place:
            spent: dict[str, list[float]] = {kind: [] for kind in kinds}
            for pair in range(pairs):
                for at, kind in enumerate(kinds[pair % len(kinds) :] + kinds[: pair % len(kinds)]):
                    words = (model, str(extra), str(steps))
                    spent[kind].append(_launch(Path(place), kind, words, traceml, pair * 10 + at))
        plain = np.array(spent["untouched"])
        more = {kind: np.array(spent[kind]) - plain for kind in kinds[1:]}
        own = more["watched"]
        row = [
            name,
            f"{np.median(plain):.0f} µs",
            f"{np.median(own):.1f} µs",
            f"{own.min():.0f} to {own.max():.0f} µs",
        ]
        if traceml:
            other = float(np.median(more["traceml"]))
            row += [f"{other:.1f} µs", f"{np.median(own) / other:.0%}" if other > 0 else "-"]
        rows.append(row)
    heads = ["a step of", "untouched, processor time", "added by watching", "range"]
    return table([*heads, *(["added by TraceML (auto)", "watching over TraceML"] if traceml else [])], rows)


def watcher_cost() -> str:
    """Of the watcher: its core and memory with 8 ranks at 20 steps a second, and 1,024 ranks' window."""
    draw = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as place:
        folder, now = Path(place), [time.time()]
        rings = [StepRing(folder / f"ring.{rank}.{os.getpid()}", rank, 8, rank, 0) for rank in range(8)]
        header = Header(id="x", stash_version="x", began=now[0], job="job")
        watcher = NodeWatcher(
            folder, RecordWriter(folder / "r.watch.jsonl", header), header, WatchOptions(), clock=lambda: now[0]
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
    row[stamped.NUMBER], row[stamped.BEGAN], row[stamped.ENDED] = step, step * 0.05, step * 0.05 + 0.05
    for stage, part in (
        (StepStage.FORWARD, 0.3),
        (StepStage.BACKWARD, 0.5),
        (StepStage.INPUT, 0.1),
        (StepStage.EXCHANGE, 0.1),
    ):
        row[stage] = 0.05 * part * float(draw.normal(1, 0.02))
    row[stamped.GRADIENTS] = 1.0
    return row
