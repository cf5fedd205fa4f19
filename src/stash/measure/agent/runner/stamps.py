"""The clocks of a step: when it ended, when its gradients were ready and exchanged, and what kept its thread waiting.

On an accelerator moments are read with the device's queue empty, or are events in that queue, read once they are
done. A job's first steps, which are as they were typed, are stamped like any others. Nothing here starts a thread,
takes a lock or waits for anything but a queue; what a block is, only ``timed_steps`` knows.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from stash.measure.linux.run_queue import NOTHING, Helpers, RunQueue, Scheduled


class Clock:
    """Reads times of the devices a rank trains on; a CPU has no queue to wait for."""

    def __init__(self) -> None:
        self.device: Any = None
        """Where batches go: the first accelerator among the parameters' devices, else the CPU."""
        self.gpu: str | None = None
        """Its UUID as NVML knows it, if it is a CUDA device."""
        self.runs_ahead = False
        """Whether there are devices whose queues go on while the host does something else."""
        self._queues: list[Any] = []
        self._ended = 0.0

    def watch(self, devices: Iterable[Any]) -> None:
        """Learn the devices from those of the parameters.

        Parameters kept on the host (offloading) do not make a job of the CPU: its work is on the current device.
        """
        import torch

        distinct = dict.fromkeys(devices)
        self._queues = [device for device in distinct if device.type != "cpu"]
        if not self._queues and torch.cuda.is_initialized():
            self._queues = [torch.device("cuda", torch.cuda.current_device())]
        self.runs_ahead = bool(self._queues)
        self.device = self._queues[0] if self._queues else torch.device("cpu")
        if self.device.type == "cuda":
            self.gpu = f"GPU-{getattr(torch.cuda.get_device_properties(self.device), 'uuid', '')}"

    now = staticmethod(time.perf_counter)
    """Seconds, without waiting for any device."""

    def settled(self) -> float:
        """Seconds, once everything submitted to the devices is done."""
        for device in self._queues:
            getattr(sys.modules["torch"], device.type).synchronize(device)
        return time.perf_counter()

    def step_ends(self) -> None:
        """A step of the script ends now; what follows, until the script goes on, is Stash's own work."""
        self._ended = self.now()

    def end_of_step(self, settled: bool) -> float:
        """Seconds at which the step ended; where devices run ahead: now, ``settled`` or not."""
        if not self.runs_ahead:
            return self._ended
        return self.settled() if settled else self.now()


class BlockClock:
    """Times the steps of a block under way, less what was not training and what Stash itself took.

    A loop that ends may go on in another epoch, or may have ended early (frameworks read a batch ahead). So what
    follows a pause is training after all if a step ends before the loop goes on.
    """

    def __init__(self, started: float) -> None:
        self.started = self._last = started
        self.steps: list[float] = []
        self.interrupted = 0.0
        self._in_step = 0.0
        self._since: float | None = None

    @property
    def paused(self) -> bool:
        return self._since is not None

    def pause(self, now: float) -> None:
        """Something other than training may begin (validation, the end of an epoch)."""
        if self._since is None:
            self._since = now

    def resume(self, now: float) -> None:
        """Training goes on."""
        if self._since is not None:
            self._in_step += now - self._since
            self._since = None

    def step(self, now: float, over: bool = False, own: float = 0.0) -> None:
        """A step ended; ``over`` if the loop may be, for all that is known; ``own`` of it was Stash's own work."""
        self.steps.append(now - self._last - self._in_step - own)
        self.interrupted += self._in_step
        self._in_step, self._last = 0.0, now
        self._since = now if over else None

    def skip(self, now: float) -> None:
        """What came since the last step's end is no step's."""
        self.interrupted += now - self._last
        self._in_step, self._last, self._since = 0.0, now, None

    def step_begins(self, now: float) -> None:
        """The script goes on now: what came since the last step's end belongs to none."""
        self._last = now
        if self._since is not None:
            self._since = now


class Stamps:
    """Stamps the steps of one training thread since ``begin``: their delays, and their windows of exchange."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._queue = RunQueue()
        self.delay = self._queue.delay
        self._helpers = Helpers(self._queue.thread)
        self._handle: Any = None
        self._device: Any = None
        self._began = self._queue.delay()
        self._ready: tuple[float, float, Scheduled] | None = None
        """When the last gradient of a backward pass was ready, and until then the thread's delay, and its helpers."""
        self._event: Any = None
        self._window = [0.0, 0.0]
        self._events: list[tuple[int, Any, Any]] = []
        """Of windows on a device's clock: the step each belongs to, and its two ends."""
        self.delays: list[float] = []
        """Seconds of each step in which the training thread was ready to run and had no core."""
        self.exchanges: list[float] = []
        """Seconds of each step from its last gradient until its backward pass was over, on the host's clock."""
        self.exchange_delays: list[float] = []
        """Of ``delays``, what fell into these."""
        self._loops: dict[int, float] = {}
        self._exchanged = NOTHING
        self.in_windows = NOTHING
        """Of the threads that exchange, in all windows of exchange."""

    @property
    def known(self) -> bool:
        """Whether this kernel counts delays."""
        return self._queue.known

    @property
    def sees_exchange(self) -> bool:
        """Whether the last gradient of a step is known, so that windows of exchange are."""
        return self._handle is not None

    def follow(self, parameter: Any) -> None:
        """The gradient of ``parameter`` is the last of a backward pass."""
        self.let_go()
        self._helpers.look()
        self._device = parameter.device
        self._handle = parameter.register_post_accumulate_grad_hook(self._last_gradient)

    def let_go(self) -> None:
        """No window of exchange is seen any more."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _last_gradient(self, parameter: Any) -> None:
        if self._device.type == "cuda":
            self._event = _event()
        else:
            self._ready = (self._now(), self._queue.delay(), self._helpers.exchange())

    def backward_ended(self) -> None:
        """A backward pass returned: what it waited for is over."""
        if self._event is not None:
            self._events.append((len(self.delays), self._event, _event()))
            self._event = None
        if self._ready is not None:
            at, delay, helpers = self._ready
            self._ready = None
            self._window[0] += self._now() - at
            self._window[1] += self._queue.delay() - delay
            self.in_windows += self._helpers.exchange() - helpers

    def step_ends(self) -> None:
        """A step of the script ended; what follows until ``step_begins`` is Stash's own work."""
        self.delays.append(self._queue.delay() - self._began)
        self.exchanges.append(self._window[0])
        self.exchange_delays.append(self._window[1])
        self._window = [0.0, 0.0]

    def step_begins(self) -> None:
        """The script goes on."""
        self._began = self._queue.delay()

    def begin(self) -> None:
        """Forget the steps so far: a block begins."""
        self._helpers.look()
        self.delays, self.exchanges, self.exchange_delays = [], [], []
        self._events, self.in_windows = [], NOTHING
        self._loops, self._exchanged = self._helpers.loop_delays(), self._helpers.exchange()

    def loop_delays(self) -> tuple[float, ...]:
        """Since ``begin``, of each thread that shares the training thread's parallel loops."""
        now = self._helpers.loop_delays()
        return tuple(now[thread] - before for thread, before in self._loops.items() if thread in now)

    def helper_cpu(self) -> float:
        """Seconds on a core since ``begin`` of the threads that exchange."""
        return (self._helpers.exchange() - self._exchanged).ran

    def windows(self) -> tuple[float, ...]:
        """Seconds of each step in windows of exchange; by the device's own clock, whose queue is empty by now."""
        seconds = list(self.exchanges)
        for step, first, last in self._events:
            if step < len(seconds):
                seconds[step] += float(first.elapsed_time(last)) / 1e3
        return tuple(seconds)


def _event() -> Any:
    event = sys.modules["torch"].cuda.Event(enable_timing=True)
    event.record()
    return event
