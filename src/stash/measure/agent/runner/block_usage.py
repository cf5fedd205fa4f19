"""What a block used of the machine: its own process, its loader's workers, and everybody together; in CPU seconds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from stash.measure.agent import private
from stash.measure.agent.data.feeds import Feed
from stash.measure.linux import counters, run_queue
from stash.measure.protocol.messages import BlockDone


class Usage:
    """Of the block that begins as this object is made."""

    def __init__(self, feeds: Sequence[Feed]) -> None:
        self._workers = [
            process.pid for feed in feeds for process in private.worker_processes(getattr(feed, "source", None))
        ]
        self._throttled = run_queue.throttled_seconds()
        self._of_workers = run_queue.of_processes(self._workers)
        self._machine = counters.totals()
        self._process, self._thread = time.process_time(), time.thread_time()

    def until_now(self, block: BlockDone) -> BlockDone:
        """``block`` with what was used, and with what the machine did meanwhile."""
        process, thread = time.process_time() - self._process, time.thread_time() - self._thread
        machine = counters.since(self._machine)
        workers = run_queue.of_processes(self._workers) - self._of_workers
        throttled = run_queue.throttled_seconds()
        limited = None if throttled is None or self._throttled is None else throttled - self._throttled
        return replace(
            block,
            cpu=machine.cpu,
            steal=machine.steal,
            network_bytes=machine.network_bytes,
            disk_bytes=machine.disk_bytes,
            cpu_seconds=_digits(process),
            thread_cpu_seconds=_digits(thread),
            machine_cpu_seconds=machine.cpu_seconds,
            worker_cpu_seconds=_digits(workers.ran) if self._workers else None,
            worker_delay_seconds=_digits(workers.delayed) if self._workers else None,
            throttled_seconds=limited,
        )


def _digits(seconds: float) -> float:
    return float(f"{seconds:.4g}")
