"""A gradient exchange of known duration: a communication hook whose future completes after a set time.

Which ranks take part is found by asking them: every bucket starts with a tiny all-reduce of ones, whose sum
is the size of the group that really met. Knows nothing of who confines that group, or why.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from typing import Any

import torch
import torch.distributed as dist

from stash.lab.testbed.accelerator import sharpen_sleep
from stash.lab.testbed.emulation import ExchangeSpec


class PacedExchange:
    """This rank's end of an emulated medium; the state of ``paced_hook``."""

    def __init__(self, exchange: ExchangeSpec) -> None:
        self._exchange = exchange
        self._ranks_per_node = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        self._buckets: queue.SimpleQueue[tuple[Any, torch.Tensor, torch.Tensor, Any]] = queue.SimpleQueue()
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
                    free = max(free, time.monotonic()) + self._exchange.seconds(size, met > self._ranks_per_node)
                    time.sleep(max(0.0, free - time.monotonic()))
                future.set_result(gradients)
            except Exception as error:  # the training thread waits for this future: it must hear of it
                future.set_exception(error)


def paced_hook(state, bucket):  # type: ignore[no-untyped-def] # DDP refuses annotations that are text
    """Exchange a bucket on the emulated medium; the gradients stay this rank's own."""
    return state.submit(bucket.buffer())
