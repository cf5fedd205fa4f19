"""What watching costs: the training thread, beside untouched and TraceML's launches, and the watcher."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from bench.machine import ROOT
from bench.table import table
from stash.measure.agent import script
from stash.measure.agent.runner.stamps import Stamps
from stash.measure.agent.wraps.stages import BatchCopies, follow_calls
from stash.measure.protocol import stamped
from stash.measure.protocol.stamped import StepRing, StepStage
from stash.monitor.accounting import undisturbed
from stash.monitor.collector import Joined
from stash.monitor.node_links import NodeMerge, NodeNews, packed_news, unpacked_news
from stash.monitor.records import Header, RecordWriter
from stash.monitor.strangers import CoreUse, lost_to_strangers
from stash.monitor.watcher import POLL_SECONDS, NodeWatcher, WatchOptions

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


def merge() -> str:
    """Processor time of node 0's watcher for one window of 1,024 ranks on 128 nodes: read, joined, accounted for."""
    draw, found, steps = np.random.default_rng(0), [], 200
    uses = {rank: CoreUse(str(rank // 8), 64.0, 1.0, 0.5, 0.1, 10.0) for rank in range(1024)}
    sent = [
        packed_news(NodeNews(node, Joined(
            tuple(range(8 * node, 8 * node + 8)), list(range(steps)), draw.uniform(0.005, 0.01, (steps, 8, 8)),
            np.zeros((steps, 8, 3)), 0.0,
        )))
        for node in range(128)
    ]  # fmt: skip
    for _ in range(9):
        began, joining = time.process_time(), NodeMerge()
        for content in sent:
            news = unpacked_news(content)
            assert news.joined is not None
            joining.take(news.node, news.joined)
        whole = joining.merged()
        assert whole is not None
        assert len(whole.ranks) == 1024
        read = time.process_time()
        lost = lost_to_strangers(whole, uses, on_cpu=True)
        assert lost is not None
        undisturbed(whole.ranks, whole.seconds, whole.delays[:, :, 0], lost)
        found.append((read - began, time.process_time() - read))
    joined, accounted = np.median(found, axis=0) * 1e3
    rows = [
        ["read and joined", f"{joined:.0f} ms"],
        ["accounted for", f"{accounted:.0f} ms"],
        ["both (goal 50 ms)", f"{joined + accounted:.0f} ms"],
        ["sent by each node", f"{len(sent[0]) / 1e3:.0f} kB"],
    ]
    return table([f"a window of 1,024 ranks on 128 nodes, {steps} steps", "median of 9"], rows)


def calls() -> str:
    """What calls that a watch follows take longer: of a model's class, and of ``Tensor.to``."""

    class Model(torch.nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return inputs

    class Followed(Model):
        pass

    listener, stamps = script.Listener(), Stamps(time.perf_counter)
    listener.listens, listener.stamps = True, stamps
    script.subscribe(listener)
    if not torch.cuda.is_available():
        torch.cuda.current_stream = lambda device=None: None  # type: ignore[assignment, return-value]
    follow_calls(Followed)
    model, followed, to = Model(), Followed(), torch.Tensor.to
    BatchCopies.of_process()
    here = torch.ones(2)
    part = torch.nn.Parameter(here)  # as a tensor on the device: the first look tells that it is no batch
    between = int(StepStage.BETWEEN)
    acts: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "the first module's call": (
            lambda: (model(here), stamps.enter(between)), lambda: (followed(here), stamps.enter(between)),
        ),
        "Tensor.to(dtype) of what is no batch": (lambda: to(part, torch.float32), lambda: part.to(torch.float32)),
        "Tensor.to(dtype) of a host tensor": (lambda: to(here, torch.float32), lambda: here.to(torch.float32)),
    }  # fmt: skip
    rows = []
    for name, (untouched, watched) in acts.items():
        pairs = np.array([(_microseconds(untouched), _microseconds(watched)) for _ in range(_PAIRS)])
        more = np.diff(pairs, axis=1)
        low, middle, high = np.percentile(more, (10, 50, 90))
        rows.append([name, f"{np.median(pairs[:, 0]):.2f} µs", f"{middle:.2f} µs ({low:.2f} to {high:.2f})"])
    script.unsubscribe()
    return table(["call", "untouched", "more when followed"], rows)


def _microseconds(act: Callable[[], object]) -> float:
    began = time.process_time()
    for _ in range(_CALLS):
        act()
    return (time.process_time() - began) / _CALLS * 1e6
