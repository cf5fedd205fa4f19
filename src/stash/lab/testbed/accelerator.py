"""A model whose layers and gradient exchange take a set time without using the CPU, with real gradients."""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from stash.lab.testbed.emulation import Emulation, ExchangeSpec, LayerSpec

# A model whose layers take a set time without using the CPU, with real parameters and real gradients. A pass sleeps
# until an absolute deadline: errors of sleeps do not add up, and DDP's own work happens meanwhile, as on a GPU.

KINDS = 7
"""Samples are numbers from 0 to 6; a batch with ``spread`` takes as long as its first sample says, 3 on average."""
SLACK_SECONDS = 0.01
"""How far the host may fall behind the device within a pass before the device notices: a GPU has a queue."""
_PR_SET_TIMERSLACK = 29


Late = Callable[[str], float]
"""Seconds that a ``forward``, ``backward``, ``optimizer`` or ``exchange`` takes besides, at the present step."""


def _on_time(what: str) -> float:
    return 0.0


class DeviceQueue:
    """An emulated device's queue of work: only how long it is still busy."""

    def __init__(self) -> None:
        self.until = 0.0

    def begin(self) -> None:
        """The device was idle until now."""
        self.until = max(self.until, time.monotonic())

    def add(self, seconds: float) -> None:
        """Work that follows what is queued already."""
        self.until = max(self.until, time.monotonic() - SLACK_SECONDS) + seconds

    def wait(self) -> None:
        """Until all queued work is done; the CPU is free meanwhile."""
        left = self.until - time.monotonic()
        if left > 0:
            time.sleep(left)


class Pace:
    """How much slower than described a step is: its rank's factor, a jitter drawn each step, and its batch's own."""

    def __init__(self, emulation: Emulation, rank: int) -> None:
        self._slow = emulation.slow_ranks.get(rank, 1.0)
        self._jitter = emulation.jitter
        self._spread = emulation.spread
        self._random = random.Random(f"{emulation.name} {rank}")
        self.factor = self._slow

    def next_step(self, inputs: Tensor) -> None:
        """Draw the next step's factor, which trains on these inputs."""
        self.factor = self._slow * max(0.0, self._random.gauss(1.0, self._jitter))
        if self._spread:
            highest = (KINDS - 1) / 2
            self.factor *= 1 + self._spread * (float(inputs.flatten()[0]) / highest - 1)


class _Pass(torch.autograd.Function):
    """Forward: queue the layer's time. Backward: sleep until its gradient would be ready, then hand it out."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, layer: EmulatedLayer) -> Tensor:
        ctx.layer = layer
        ctx.size = weight.shape
        layer.queue.add(layer.spec.forward_seconds * layer.pace.factor)
        return inputs.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        layer: EmulatedLayer = ctx.layer
        layer.queue.add(layer.spec.backward_seconds * layer.pace.factor + layer.late("backward"))
        # before the wait, so that filling it takes no time of its own
        own = gradient.new_full(ctx.size, 1e-6)
        layer.queue.wait()
        return gradient, own, None


class EmulatedLayer(nn.Module):
    """One layer of the description; its weight is never used, only exchanged."""

    def __init__(self, spec: LayerSpec, queue: DeviceQueue, pace: Pace, late: Late) -> None:
        super().__init__()
        self.spec = spec
        self.queue = queue
        self.pace = pace
        self.late = late
        count = spec.bytes // 4
        # A layer without parameters still needs a tensor to be differentiated by, or its backward is never called.
        weight = torch.zeros(max(1, count))
        self.weight: Tensor = nn.Parameter(weight) if count else weight.requires_grad_()

    def forward(self, inputs: Tensor) -> Tensor:
        out: Tensor = _Pass.apply(inputs, self.weight, self)  # type: ignore[no-untyped-call]
        return out


class EmulatedModel(nn.Module):
    """The layers one after the other; ``queue`` is the device they share. Takes and returns any float tensor."""

    def __init__(self, emulation: Emulation, rank: int = 0, late: Late = _on_time) -> None:
        super().__init__()
        sharpen_sleep()
        self.queue, self.pace = DeviceQueue(), Pace(emulation, rank)
        self.late = late
        *others, last = emulation.layers  # a late backward pass is late from its first gradient on
        self.layers = nn.ModuleList(
            EmulatedLayer(layer, self.queue, self.pace, _on_time) for layer in others
        )
        self.layers.append(EmulatedLayer(last, self.queue, self.pace, late))

    def forward(self, inputs: Tensor) -> Tensor:
        self.pace.next_step(inputs)
        self.queue.begin()
        self.queue.add(self.late("forward"))
        out = inputs
        for layer in self.layers:
            out = layer(out)
        self.queue.wait()
        return out


class EmulatedOptimizer(torch.optim.Optimizer):
    """An optimizer whose step takes a set time on the emulated device and leaves the weights as they are."""

    def __init__(
        self,
        parameters: Iterable[Tensor],
        queue: DeviceQueue,
        seconds: float,
        late: Late = _on_time,
    ) -> None:
        super().__init__(parameters, {"lr": 0.0})
        self._queue = queue
        self._seconds = seconds
        self._late = late

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Wait as long as the emulated update takes."""
        loss = closure() if closure is not None else None
        if seconds := self._seconds + self._late("optimizer"):
            self._queue.begin()
            self._queue.add(seconds)
            self._queue.wait()
        return loss


def sharpen_sleep() -> None:
    """Let this thread's sleeps end within microseconds of their deadline instead of the usual 50 µs; Linux only."""
    libc: Any = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


def go_first() -> None:
    """Let this thread, and all it starts, run as soon as they wake, where that is allowed (root).

    Emulated hosts share the cores, which real ones would not. A kernel that preempts lazily lets a woken thread wait
    for the next timer tick, which makes a tiny all-reduce of gloo take 4 ms instead of 0.4.
    """
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


# A gradient exchange of known duration: every bucket starts with a tiny all-reduce of ones, whose sum is the size of
# the group that really met.


class PacedExchange:
    """This rank's end of an emulated medium; the state of ``paced_hook``."""

    def __init__(self, exchange: ExchangeSpec, late: Late) -> None:
        self._exchange = exchange
        self._late = late
        self._ranks_per_node = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        self._buckets: queue.SimpleQueue[tuple[Any, torch.Tensor, torch.Tensor, Any]] = (
            queue.SimpleQueue()
        )
        threading.Thread(target=self._carry, daemon=True).start()

    def submit(self, gradients: torch.Tensor) -> Any:
        """A future of the same gradients, done when the emulated medium has carried them."""
        ones = torch.ones(1)
        meeting = dist.all_reduce(ones, async_op=True)
        future: Any = torch.futures.Future()
        self._buckets.put((meeting, ones, gradients, future))
        return future

    def _carry(self) -> None:
        sharpen_sleep()
        free = 0.0
        while True:
            meeting, ones, gradients, future = self._buckets.get()
            try:
                meeting.wait()
                met = round(float(ones))
                if met > 1:
                    size = gradients.numel() * gradients.element_size()
                    free = (
                        max(free, time.monotonic())
                        + self._exchange.seconds(size, met > self._ranks_per_node)
                        + self._late("exchange")
                    )
                    time.sleep(max(0.0, free - time.monotonic()))
                future.set_result(gradients)
            except (
                Exception
            ) as error:  # the training thread waits for this future: it must get the error
                future.set_exception(error)


def paced_hook(state, bucket):  # type: ignore[no-untyped-def] # DDP refuses annotations that are text
    """Exchange a bucket on the emulated medium; the gradients stay this rank's own."""
    return state.submit(bucket.buffer())
