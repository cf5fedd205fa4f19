"""A job that is watched, and signals: what asks the watcher to end asks the job, and asks it once.

A terminal's Ctrl-C, ``timeout`` and Slurm signal a whole group, ``kill`` and a container's runtime one process. No
handler is told which of the two a signal was. So a small witness stands in the job's group: what ends it has reached
the job too, and is not handed on, since a second interrupt would break into the saving that follows the first. The
witness outlives a watcher that is killed: it removes what that has in memory, and says that the job goes on.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from stash.core.interrupts import REQUESTS, handle_signals

_HANDED_ON = (
    *REQUESTS,
    *(getattr(signal, name) for name in ("SIGUSR1", "SIGUSR2") if hasattr(signal, name)),
)
_GROUP_SECONDS = 0.3
"""In which a signal has reached all of a group."""
_PATIENCE = 5.0
"""Seconds after a request to end, then it is said that the job still runs."""
_WITNESS = """
ulimit -c 0; read -r line && exit
rm -rf -- "$1"
kill -0 "$2" 2>/dev/null || exit
echo "stash: the watcher was killed; the job goes on unwatched (\\`kill $2\\` ends it)" >&2
"""
"""Waits for the watcher to write a line; reads an end without one if it was killed."""


class WatchedJob:
    """The job as a process of this one's, once ``start`` was called; ``folder`` is what the watch has in memory."""

    def __init__(self, start: Callable[[], subprocess.Popen[bytes]], folder: Path) -> None:
        self._start = start
        self._folder = folder
        self._received: list[int] = []
        self._asked: float | None = None

    def _start_witness(self) -> subprocess.Popen[bytes] | None:
        words = ("sh", "-c", _WITNESS, "stash-watch", str(self._folder), str(self._process.pid))
        try:
            return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        except OSError:  # a system without a shell
            return None

    def run_job(self, seconds: float, poll: Callable[[], object]) -> int:
        """Start it, call ``poll`` every so many seconds until it has ended; the value is its exit code in a shell."""
        with handle_signals(_HANDED_ON, lambda number, frame: self._received.append(number)):
            self._process = self._start()
            self._witness = self._start_witness()
            try:
                while True:
                    with suppress(subprocess.TimeoutExpired):
                        code = self._process.wait(seconds)
                        return code if code >= 0 else 128 - code
                    while self._received:
                        self._hand_on(self._received.pop(0))
                    if self._asked is not None and time.monotonic() - self._asked > _PATIENCE:
                        self._asked = float("inf")
                        self._say(f"still runs {_PATIENCE:.0f} s after it was asked to end")
                    poll()
            finally:
                if self._witness is not None:
                    with suppress(OSError):  # it may be gone
                        self._witness.communicate(b"\n")

    def _hand_on(self, number: int) -> None:
        """Send it to the job, unless the job has it as well."""
        if number in REQUESTS and self._asked is None:
            self._asked = time.monotonic()
        ended = None
        with suppress(subprocess.TimeoutExpired):
            ended = None if self._witness is None else self._witness.wait(_GROUP_SECONDS)
        if ended == -number:
            self._witness = self._start_witness()
        elif (
            self._witness is not None or number != signal.SIGINT
        ):  # of which terminals send most to a group
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _say(self, text: str) -> None:
        with suppress(OSError):
            end = f"(`kill -9 {self._process.pid}` ends it)"
            print(f"stash: the job {text} {end}", file=sys.stderr, flush=True)
