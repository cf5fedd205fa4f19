"""What the training thread waits for Python's interpreter while another thread of the script's holds it.

A thread that computes in Python gives the interpreter up some milliseconds after it was asked to, and a step asks
hundreds of times. Seen from outside: the training thread was neither on a core nor ready for one while it computed,
and another thread was on a core, in Python's own code. Waits for devices and other ranks look the same, so only jobs
without are judged; which those are is not known here.
"""

from __future__ import annotations

import dis
import threading
import time
from types import FrameType
from typing import Any, NamedTuple

from stash.measure.agent import private
from stash.measure.agent.runner.thread_stack import own_line, place_of
from stash.measure.linux.run_queue import RunQueue, seconds_of_threads

_LEAST = 0.1
"""Of the time that the training thread computed."""
_LOOKS, _PAUSE = 20, 0.002
_IN_PYTHON = ("JUMP", "POP_JUMP", "RESUME", "FOR_ITER")
"""Instructions at which a thread gives the interpreter up that computes in Python; one in a library is at a call."""


class InterpreterWait(NamedTuple):
    """Seconds, and the fields of the ``LedgerPlace`` of the thread that held the interpreter."""

    seconds: float
    place: dict[str, Any]


class InterpreterClock:
    """Begins as it is made, on the training thread."""

    def __init__(self) -> None:
        self._queue = RunQueue()
        self._ran, self._delayed = time.thread_time(), self._queue.delay()
        self._others = seconds_of_threads()

    def find_wait(self, computing_seconds: float) -> InterpreterWait | None:
        """Of that much since it began, which the thread computed and waited for nothing known; None of little."""
        if not self._queue.is_supported:
            return None
        off_core = (
            computing_seconds
            - (time.thread_time() - self._ran)
            - (self._queue.delay() - self._delayed)
        )
        now = seconds_of_threads()
        busiest = max(now, key=lambda each: now[each] - self._others.get(each, 0.0), default=None)
        if busiest is None or off_core < _LEAST * computing_seconds:
            return None
        if (
            now[busiest] - self._others.get(busiest, 0.0) < off_core / 2
        ):  # it has a core only now and then, too
            return None
        frame = _frame_in_python(busiest)
        if frame is None:
            return None
        line = own_line(frame)
        return InterpreterWait(off_core, {} if line is None else place_of(line))


def _frame_in_python(thread: threading.Thread) -> FrameType | None:
    """Where the thread computes in Python; ``None`` if it is in a library whenever it is looked at."""
    for _ in range(_LOOKS):
        frame = private.stack_of(thread.ident or 0)
        if frame is None:
            return None
        if dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith(_IN_PYTHON):
            return frame
        time.sleep(_PAUSE)
    return None
