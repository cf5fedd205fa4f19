"""Moments at which waits begin and end: of the host's clock, or events in a CUDA stream's queue."""

from __future__ import annotations

import functools
import sys
import time
from typing import Any

from stash.measure.agent import private


class HostMarks:
    """Moments on the host's clock."""

    now = staticmethod(time.perf_counter)
    here = True
    """Whether what is called now keeps the work that the step is made of waiting."""
    captures = False
    """Whether it goes into a graph, of which an event tells nothing."""

    @staticmethod
    def done(mark: float) -> bool:
        return True

    @staticmethod
    def seconds(mark: float) -> float:
        return mark


class DeviceMarks:
    """Moments in the queue of a CUDA ``device``'s current stream, in seconds since this object was made."""

    def __init__(self, device: Any = None) -> None:
        self._cuda = sys.modules["torch"].cuda
        self._current = private.current_stream(self._cuda, device)
        self._stream = self._current()
        self._event = functools.partial(self._cuda.Event, enable_timing=True)
        self._base = self.now()

    @property
    def here(self) -> bool:
        """Of calls on other streams (FSDP2's) only what the step's own stream waits for them counts."""
        return bool(self._current() == self._stream)

    @property
    def captures(self) -> bool:
        return bool(self._cuda.is_current_stream_capturing())

    def now(self) -> Any:
        event = self._event()
        event.record(self._current())
        return event

    @staticmethod
    def done(mark: Any) -> bool:
        return bool(mark.query())

    def seconds(self, mark: Any) -> float:
        return float(self._base.elapsed_time(mark)) / 1e3
