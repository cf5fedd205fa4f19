"""The clock of a rank, wall time with its devices' queues empty at both ends of what is timed; and a block's."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import Any


class Clock:
    """Times on the devices a rank trains on; a CPU has no queue to wait for."""

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
    """A block under way: its clock readings, less what was not training and what Stash itself took.

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
