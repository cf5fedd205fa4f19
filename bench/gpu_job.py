"""A training script whose step is made of parts of known length, for ``bench/gpu.py``; it knows nothing of Stash.

Compute is a kernel that spins for clock cycles (on a CPU, which only rehearses, it sleeps); batches have a chosen
size and take a chosen time to make. With ``--plain`` it times itself, by the device's own events where it has some,
and prints that: the truth that Stash's figures are held against.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

BATCH, LEAD_IN, ROUNDS, FILLING = 8, 10, 5, 3
_PROBE_CYCLES = 20_000_000


class Spin(torch.autograd.Function):
    """Keeps the device busy for a set time in each direction, and changes nothing."""

    @staticmethod
    def forward(context, tensor, busy):
        context.busy = busy
        busy()
        return tensor.view_as(tensor)

    @staticmethod
    def backward(context, gradient):  # type: ignore[override]
        context.busy()
        return gradient, None


class Spinning(nn.Module):
    """Half of the time forward, half backward, with parameters of so many bytes."""

    def __init__(self, busy, parameter_bytes):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(max(1, parameter_bytes // 4)))
        self._busy = busy

    def forward(self, batch):
        seen = batch.reshape(-1)[:1].float()
        return Spin.apply((seen * self.weight).sum(), self._busy)  # type: ignore[no-any-return, no-untyped-call]


class Samples(Dataset[Tensor]):
    """Samples of a size, each of which takes a time to make."""

    def __init__(self, sample_bytes, seconds):
        self._bytes, self._seconds = sample_bytes, seconds

    def __len__(self):
        return 4096

    def __getitem__(self, index):
        if self._seconds:
            time.sleep(self._seconds)
        return torch.full((self._bytes,), index % 251, dtype=torch.uint8)


def busy_for(device, seconds):
    """What keeps ``device`` busy for about ``seconds``."""
    if device.type == "cpu":
        return lambda: time.sleep(seconds)
    cycles = int(
        seconds / event_seconds(lambda: torch.cuda._sleep(_PROBE_CYCLES), 5) * _PROBE_CYCLES
    )
    return lambda: torch.cuda._sleep(cycles)


def event_seconds(act, times):
    """Mean seconds of the device for what ``act`` submits; the first one does not count."""
    act()
    return _time_by_events(act, times)


def _time_by_events(act, times):
    cuda: Any = torch.cuda
    began, ended = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    began.record()
    for _ in range(times):
        act()
    ended.record()
    ended.synchronize()
    return float(began.elapsed_time(ended)) / 1e3 / times


def network(options, device):
    if not options.conv:
        return Spinning(busy_for(device, options.compute / 2), options.parameters)
    layers = [nn.Conv2d(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class Job:
    """The model, its optimizer, and how a step is taken."""

    def __init__(self, options):
        self.options = options
        self.device = torch.device(options.device)
        model = network(options, self.device).to(self.device)
        if options.channels_last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if dist.is_initialized():
            model = DistributedDataParallel(model)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
        self.model = torch.compile(model) if options.compile else model
        self.scaler = torch.amp.GradScaler(
            self.device.type, enabled=options.amp and self.device.type == "cuda"
        )
        self._graph: Any = None
        self._static: Tensor | None = None

    def move_batch(self, batch):
        there = batch.to(self.device, non_blocking=True)
        if not self.options.conv:
            return there
        side = int((there.shape[1] / 3) ** 0.5)
        images = there[:, : 3 * side * side].reshape(len(there), 3, side, side).float()
        return (
            images.contiguous(memory_format=torch.channels_last)
            if self.options.channels_last
            else images
        )

    def step(self, batch):
        there = self.move_batch(batch)
        if self.options.graph:
            self._replay(there)
        else:
            self.optimizer.zero_grad(set_to_none=not self.options.graph)
            self._passes(there)
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def _passes(self, there):
        kind = torch.float16 if self.device.type == "cuda" else torch.bfloat16
        with torch.autocast(self.device.type, kind, enabled=self.options.amp):
            loss = self.model(there).float().mean()
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        if self.options.synchronise:
            loss.item()

    def _replay(self, there):
        """Forward and backward as one CUDA graph; the optimizer's step stays outside."""
        if self._graph is None:
            self._static = there.clone()
            side: Any = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    self._passes(self._static)
            torch.cuda.current_stream().wait_stream(side)
            self.optimizer.zero_grad(set_to_none=False)
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._passes(self._static)
        assert self._static is not None
        self._static.copy_(there)
        self._graph.replay()


def batches(loader):
    while True:
        yield from loader


def truths(job, loader):
    """Seconds of a step, of one on a batch that is on the device already, and of the copy.

    Medians of short rounds in turn, so that a machine that changes changes them all.
    """
    fresh = batches(loader)
    held = next(fresh)
    there = held.to(job.device)
    acts: dict[str, Callable[[], object]] = {
        "step": lambda: job.step(next(fresh)),
        "resident": lambda: job.step(there),
    }
    for act in acts.values():
        _time_loop(job, act, LEAD_IN)
    steps = max(1, job.options.plain // ROUNDS)
    rounds = [
        {name: _time_loop(job, act, steps) for name, act in acts.items()} for _ in range(ROUNDS)
    ]
    found = {name: median(each[name] for each in rounds) for name in acts}
    if job.options.busy:
        found["busy"] = (
            _busy_seconds(lambda: job.step(there), steps) if job.device.type == "cuda" else 0.0
        )
    if job.device.type == "cuda":
        found["copy"] = median(_copy_seconds(job, next(fresh)) for _ in range(job.options.plain))
    return found


def _time_loop(job, act, steps):
    """Mean seconds in a loop that is under way: a device that runs ahead has its queue filled before they count."""
    _settle(job)
    for _ in range(FILLING):
        act()
    return _time_by_events(act, steps) if job.device.type == "cuda" else _time_by_clock(act, steps)


def _time_by_clock(act, steps):
    began = time.perf_counter()
    for _ in range(steps):
        act()
    return (time.perf_counter() - began) / steps


def _copy_seconds(job, batch):
    """Of a batch that was just made, as a job copies it: memory that was copied before is faster."""
    _settle(job)
    return _time_by_events(lambda: batch.to(job.device, non_blocking=True), 1)


def _busy_seconds(act, times):
    """Seconds for which kernels run, by PyTorch's profiler (CUPTI); they run one at a time here."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(times):
            act()
        torch.cuda.synchronize()
    kernels = (event for event in seen.events() or () if event.device_type.name == "CUDA")
    return float(sum(kernel.time_range.elapsed_us() for kernel in kernels)) / 1e6 / times


def _settle(job):
    if job.device.type == "cuda":
        torch.cuda.synchronize()


def loader_of(options):
    data = Samples(options.bytes // BATCH, options.prep / BATCH)
    return DataLoader(data, BATCH, shuffle=True, pin_memory=options.pinned, drop_last=True)


def several(jobs):
    """Print the truths of each job twice, in turns, a line each; starting up takes longer than any of them."""
    for turn in range(2):
        for number, words in enumerate(jobs):
            options = parser().parse_args(words)
            print(
                json.dumps(
                    {"job": number, "turn": turn, **truths(Job(options), loader_of(options))}
                ),
                flush=True,
            )


def main():
    options = parser().parse_args()
    if options.several:
        several(json.loads(sys.stdin.read()))
        return 0
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("nccl" if options.device == "cuda" else "gloo")
    if options.device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    job, loader = Job(options), loader_of(options)
    if options.plain:
        found = truths(job, loader)
        if int(os.environ.get("RANK", "0")) == 0:
            print(json.dumps(found), flush=True)
        return 0
    for batch in itertools.islice(batches(loader), options.steps):
        job.step(batch)
    return 0


def parser():
    made = argparse.ArgumentParser(description=__doc__)
    add = made.add_argument
    add("--device", choices=("cuda", "cpu"), default="cuda")
    add(
        "--compute",
        type=float,
        default=0.02,
        metavar="SECONDS",
        help="of the device, forward and backward",
    )
    add("--parameters", type=int, default=4096, metavar="BYTES")
    add("--bytes", type=int, default=4096, metavar="BYTES", help="of a batch")
    add("--prep", type=float, default=0.0, metavar="SECONDS", help="to make a batch")
    add("--steps", type=int, help="and end after so many")
    add("--plain", type=int, metavar="STEPS", help="time so many steps, print the seconds and end")
    for flag in (
        "pinned",
        "conv",
        "amp",
        "compile",
        "graph",
        "channels-last",
        "synchronise",
        "several",
        "busy",
    ):
        add(f"--{flag}", action="store_true")
    return made


if __name__ == "__main__":
    sys.exit(main())
