"""One started launch: its processes, its output, its end. Nothing it started outlives it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path

from stash.measure.launch.printed import tail
from stash.measure.launch.request import Request
from stash.measure.launch.standard_input import handed_on
from stash.measure.linux.processes import ask_to_end, carrying, descendants, end_at_once, freeze, status_of
from stash.measure.run.beats import Beat, beats
from stash.measure.run.folder import RunFolder
from stash.measure.run.orders import VARIABLE

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_GRACE = 10.0
"""Seconds for the supervisor to end, when nothing is left below it."""
_EXITING = 10.0
"""Seconds for a rank to end by itself that has come to its end."""
_TICK = 0.02


class Process:
    """A launch in a session of its own below a supervisor, its output in its folder."""

    def __init__(self, request: Request, folder: RunFolder) -> None:
        self.folder = folder
        self._orders = request.variables[VARIABLE]
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._first: int | None = None
        self._codes: dict[int, int] = {}
        self._said = b""
        self._line, theirs = socket.socketpair()
        try:
            with theirs, folder.output.open("ab") as output, handed_on() as given:
                self._supervisor = subprocess.Popen(
                    (*_supervised(theirs.fileno(), self._orders), *request.argv),
                    # It does not carry the orders itself: whoever ends all that do must leave it to do its work.
                    env={name: value for name, value in request.environment().items() if name != VARIABLE},
                    stdin=given,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=(theirs.fileno(),),
                )
        except BaseException:
            self.stop()  # it may have been started all the same
            raise
        self._line.setblocking(False)

    def poll(self) -> int | None:
        """Exit status of what was started (the negative number of a signal), or ``None`` while it runs."""
        self._listen()
        if self._first in self._codes:
            return self._codes[self._first]
        return self._supervisor.poll() if self._supervisor is not None else None

    def _listen(self) -> None:
        """Take what the supervisor told of processes that ended."""
        with contextlib.suppress(OSError):  # nothing new, or closed
            self._said += self._line.recv(1 << 16)
        *lines, self._said = self._said.split(b"\n")
        for line in lines:
            number, *status = map(int, line.split())
            if status:
                self._codes[number] = os.waitstatus_to_exitcode(status[0])
            else:
                self._first = number

    def stop(self) -> None:
        """End the launch and everything it started: asked first, then by force."""
        if self._line.fileno() >= 0:
            ask_to_end(self._alive)
            self._close()

    def finish(self, exiting: Collection[int]) -> dict[int, int]:
        """End everything at once, so that nothing follows what has ended; exit codes of the processes named.

        Those have come to their own end and wait there: they go on to it while nothing else moves.
        """
        wanted = set(exiting) & set(self._alive())
        freeze(self._alive, {*wanted, *(child for number in wanted for child in descendants(number))})
        self.folder.released.touch()
        found: dict[int, int] = {}
        deadline = time.monotonic() + _EXITING
        while wanted - found.keys() and time.monotonic() < deadline:
            self._listen()
            for number in wanted - found.keys():
                status = status_of(number)
                if number in self._codes:
                    found[number] = self._codes[number]
                elif status is not None and status.ended:
                    found[number] = status.code
            time.sleep(_TICK)
        end_at_once(self._alive)
        return found

    def _close(self) -> None:
        """Let go of the supervisor, which then ends what is left, if anything is, and itself."""
        self._listen()
        self._line.close()
        if self._supervisor is None:
            return
        try:
            self._supervisor.wait(timeout=_GRACE)
        except subprocess.TimeoutExpired:
            self._supervisor.send_signal(signal.SIGKILL)
            self._supervisor.wait()

    def _alive(self) -> list[int]:
        """Every process of this launch: below its supervisor, or with its orders, as those of another namespace."""
        below = descendants(self._supervisor.pid) if self._supervisor is not None else []
        return [*below, *(number for number in carrying(VARIABLE, self._orders) if number not in below)]

    def output(self) -> str:
        """The last the job printed so far."""
        return tail(self.folder.output)

    def crashes(self) -> list[str]:
        """Tracebacks of ranks that died of an exception, the earliest first."""
        return [tail(path) for path in self.folder.crashes()]

    def silent(self) -> list[int]:
        """Ranks that are gone without a word."""
        return self.folder.silent()

    def beats(self) -> dict[int, Beat]:
        """How far each rank got."""
        return beats(self.folder)


def _supervised(line: int, orders: str) -> tuple[str, ...]:
    """What begins the command of a launch; without any of the job's own settings for Python."""
    return (sys.executable, "-I", "-S", str(_SUPERVISOR), str(line), f"{VARIABLE}={orders}")
