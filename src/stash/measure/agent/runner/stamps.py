"""The stamps of a step: when its gradients were ready, when the exchange was over, and what kept the thread waiting.

One object for each training thread, told by what the script does. It keeps the steps since ``begin``; a job's first
steps, which are as they were typed, are stamped like any others. On an accelerator the moments are events in the
device's queue, read once they are done. It starts no thread, takes no lock, and waits for nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from stash.measure.linux.run_queue import NOTHING, Helpers, RunQueue, Scheduled


class Stamps:
    """Of the steps since ``begin``: their delays, and their windows of exchange."""

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
