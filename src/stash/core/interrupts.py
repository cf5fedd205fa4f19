"""Requests to end that count as Ctrl-C, and the platforms where Stash can measure at all.

Of a batch system's SIGTERM, a closed terminal and the like the first counts. What cleans up after KeyboardInterrupt
then cleans up after all of these, and is not interrupted itself. Python drops an exception that hits a finalizer or a
weak reference's callback, of which every import has one: so a request is also remembered, and what runs for long asks
for it (``follow_requests``). Knows nothing of what is cleaned up.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from stash.core.errors import UserError

REQUESTS = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
    if hasattr(signal, name)
)
"""The signals that ask a program to end, as torchrun understands them too. Windows lacks some."""


class _Request:
    """What the handlers of this process have received."""

    came = False


def follow_requests() -> None:
    """Raise KeyboardInterrupt if a request has come since the innermost ``interrupted_by`` began."""
    if _Request.came:
        raise KeyboardInterrupt


@contextmanager
def interrupted_by(*signals: signal.Signals) -> Iterator[None]:
    """Within the block the first of ``signals`` raises KeyboardInterrupt; their handlers are back afterwards.

    Those that follow change nothing: a closed terminal sends several, and what they would break into is the cleaning
    up. A signal that is ignored (``nohup``) stays ignored. Does nothing in a thread other than the main one, where
    Python allows no handlers.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not _Request.came:
            _Request.came = True
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    outer = _Request.came
    _Request.came = False
    try:
        with handle_signals(signals, interrupt):
            yield
    finally:
        _Request.came = outer


@contextmanager
def postpone_requests() -> Iterator[None]:
    """What is done within the block is done whole: a request that comes meanwhile takes effect at its end."""
    came: list[int] = []
    with handle_signals(REQUESTS, lambda number, frame: came.append(number)):
        yield
    if came:
        signal.raise_signal(came[0])


@contextmanager
def handle_signals(
    signals: Sequence[signal.Signals], handler: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
    """Within the block signals go to ``handler``; one that is ignored (``nohup``) stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = [number for number in signals if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, handler) for number in asked}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def require_linux(what: str) -> None:
    """Raise UserError on any other system, which has other page caches and no /proc; ``what`` was to be done."""
    if sys.platform != "linux":
        here = {"darwin": "macOS", "win32": "Windows"}.get(sys.platform, sys.platform)
        raise UserError(
            f"{what} needs Linux, and this is {here}: run it in a Linux container "
            "or virtual machine; `stash show` and `stash catalog` work here too"
        )
