"""The clock of a rank: wall time with its devices' queues empty at both ends of what is timed."""

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
        self._queues: list[Any] = []

    def watch(self, devices: Iterable[Any]) -> None:
        """Learn the devices from those of the parameters.

        Parameters kept on the host (offloading) do not make a job of the CPU: its work is on the current device.
        """
        import torch

        distinct = dict.fromkeys(devices)
        self._queues = [device for device in distinct if device.type != "cpu"]
        if not self._queues and torch.cuda.is_initialized():
            self._queues = [torch.device("cuda", torch.cuda.current_device())]
        self.device = self._queues[0] if self._queues else torch.device("cpu")
        if self.device.type == "cuda":
            self.gpu = f"GPU-{getattr(torch.cuda.get_device_properties(self.device), 'uuid', '')}"

    def now(self) -> float:
        """Seconds, without waiting for any device."""
        return time.perf_counter()

    def settled(self) -> float:
        """Seconds, once everything submitted to the devices is done."""
        for device in self._queues:
            getattr(sys.modules["torch"], device.type).synchronize(device)
        return time.perf_counter()
