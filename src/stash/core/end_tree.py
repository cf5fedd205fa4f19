"""How many processes end: asked first or at once, until none is left that whoever calls can find.

Which processes they are it is told by a function, since one that is about to be ended may just have started another.
Standard library only, because a launch's supervisor has nothing else.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

_GRACE = 3.0
"""Seconds to react to a request, and for helpers to tidy up."""
_STOPPING = 1.0
"""Seconds for what was told to stop; a thread deep inside a driver stops once it leaves it."""
_TICK = 0.02

Find = Callable[[], list[int]]
"""Numbers of live processes."""


def freeze(find: Find, spared: Collection[int] = ()) -> None:
    """Stop all that are found, and what they start meanwhile: none of them does anything any more.

    A signal to stop takes effect once each of their threads is next on a core, so that is waited for.
    """
    frozen = set(spared)
    while new := [number for number in find() if number not in frozen]:
        stopping = _send(new, signal.SIGSTOP)
        deadline = time.monotonic() + _STOPPING
        while not all(map(_is_stopped, stopping)) and time.monotonic() < deadline:
            time.sleep(_TICK / 20)
        frozen.update(new)


def end_tree(find: Find, seconds: float = _GRACE) -> None:
    """Request all that are found to end, those on top first, and end by force what is there after ``seconds``."""
    _send(find(), signal.SIGTERM)
    _wait_until_gone(find, seconds)
    end_at_once(find)


def end_at_once(find: Find) -> None:
    """End all that are found before any of them can notice that another is gone; helpers may tidy up first."""
    freeze(find)
    helpers = []  # they remove what others leave in shared memory once those are gone, and then end by themselves
    for number in find():
        with suppress(OSError):
            command = Path(f"/proc/{number}/cmdline").read_bytes()
            if b"multiprocessing.resource_tracker" in command or b"torch_shm_manager" in command:
                helpers.append(number)
    for _ in range(3):  # a process that is about to be ended may just have started another
        _send([number for number in find() if number not in helpers], signal.SIGKILL)
        _wait_until_gone(lambda: [number for number in find() if number not in helpers], _GRACE)
    _send(helpers, signal.SIGCONT)
    _wait_until_gone(find, _GRACE)
    _send(find(), signal.SIGKILL)
    _wait_until_gone(find, _GRACE)


def _send(numbers: list[int], what: signal.Signals) -> list[int]:
    """Those that the signal was sent to: not who is gone, or not ours."""
    reached = []
    for number in numbers:
        with suppress(OSError):
            os.kill(number, what)
            reached.append(number)
    return reached


def _is_stopped(number: int) -> bool:
    """Whether no thread of a process runs, or will: all are stopped or have ended, or it is gone."""
    try:
        stats = [
            path.read_text(errors="replace") for path in Path(f"/proc/{number}/task").glob("*/stat")
        ]
    except OSError:  # one of its threads has ended meanwhile
        return not Path(f"/proc/{number}").exists()
    return all(stat.rpartition(")")[2].split()[0] in "TtZX" for stat in stats)


def _wait_until_gone(find: Find, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while find() and time.monotonic() < deadline:
        time.sleep(_TICK)
