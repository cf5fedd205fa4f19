"""Requests to end that count as Ctrl-C: a batch system's SIGTERM, a terminal that is closed.

What cleans up after KeyboardInterrupt then cleans up after these too. Knows nothing of what is cleaned up.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

REQUESTS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""The signals that ask a program to end. Windows has no SIGHUP."""


@contextmanager
def interrupted_by(*signals: signal.Signals) -> Iterator[None]:
    """Within the block the first of ``signals`` raises KeyboardInterrupt; their handlers are back afterwards.

    Those that follow change nothing: a closed terminal sends several, and what they would break into is the cleaning
    up. A signal that is ignored (``nohup``) stays ignored. Does nothing in a thread other than the main one, where
    Python allows no handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal heard
        if not heard:
            heard = True
            raise KeyboardInterrupt

    asked = [number for number in signals if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in asked}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
