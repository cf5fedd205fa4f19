"""The clock of a rank: wall time with the device's queue empty at both ends of what is timed."""

from __future__ import annotations

import time
from typing import Any


class Clock:
    """Times on ``device``; a CPU has no queue to wait for."""

    def __init__(self) -> None:
        self.device: Any = None

    def now(self) -> float:
        """Seconds, without waiting for the device."""
        return time.perf_counter()

    def settled(self) -> float:
        """Seconds, once everything submitted to the device is done."""
        if self.device is not None and self.device.type == "cuda":
            import torch

            torch.cuda.synchronize(self.device)
        return time.perf_counter()
