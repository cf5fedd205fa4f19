"""Requests to end that count as Ctrl-C: a batch system's SIGTERM, a terminal that is closed.

What cleans up after KeyboardInterrupt then cleans up after these too. Knows nothing of what is cleaned up.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupted_by(*signals: signal.Signals) -> Iterator[None]:
    """Within the block each of ``signals`` raises KeyboardInterrupt; their handlers are back afterwards.

    Does nothing in a thread other than the main one, where Python allows no handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
