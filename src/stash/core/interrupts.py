"""Requests to end that count as Ctrl-C, and the platforms where Stash can measure at all."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from stash.core.errors import UserError

# Interrupts ------------------------------------------------------------------------------------------------
# Requests to end that count as Ctrl-C, and the first of them only: a batch system's SIGTERM, a closed terminal.
#
# What cleans up after KeyboardInterrupt then cleans up after all of these, and is not interrupted itself. Python
# drops an exception that hits a finalizer or a weak reference's callback, of which every import has one: so a
# request is also remembered, and what runs for long asks for it (``follow_requests``). Knows nothing of what is
# cleaned up.

REQUESTS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, name)
)
"""The signals that ask a program to end, as torchrun understands them too. Windows lacks some."""


class _Heard:
    """What the handlers of this process have heard."""

    request = False


def follow_requests() -> None:
    """Raise KeyboardInterrupt if a request has come since the innermost ``interrupted_by`` began."""
    if _Heard.request:
        raise KeyboardInterrupt


@contextmanager
def interrupted_by(*signals: signal.Signals) -> Iterator[None]:
    """Within the block the first of ``signals`` raises KeyboardInterrupt; their handlers are back afterwards.

    Those that follow change nothing: a closed terminal sends several, and what they would break into is the cleaning
    up. A signal that is ignored (``nohup``) stays ignored. Does nothing in a thread other than the main one, where
    Python allows no handlers.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not _Heard.request:
            _Heard.request = True
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    outer, _Heard.request = _Heard.request, False
    try:
        with _handled(signals, interrupt):
            yield
    finally:
        _Heard.request = outer


@contextmanager
def postponed() -> Iterator[None]:
    """What is done within the block is done whole: a request that comes meanwhile takes effect at its end."""
    came: list[int] = []
    with _handled(REQUESTS, lambda number, frame: came.append(number)):
        yield
    if came:
        signal.raise_signal(came[0])


@contextmanager
def _handled(signals: Sequence[signal.Signals], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
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


# Platforms -------------------------------------------------------------------------------------------------
# Where Stash can measure: on Linux, whose page cache, /proc and /sys it reads. Everything else works anywhere.

_NAMES = {"darwin": "macOS", "win32": "Windows"}


def require_linux(what: str) -> None:
    """Raise UserError on any other system; ``what`` is what was to be done."""
    if sys.platform != "linux":
        raise UserError(
            f"{what} needs Linux, and this is {_NAMES.get(sys.platform, sys.platform)}: run it in a Linux container "
            "or virtual machine; `stash show` and `stash catalog` work here too"
        )
