"""Runs around torchrun on a rented node of a synchronous job: makes of a notice a checkpoint, then an orderly end.

Without it, all that a notice changes is that the machine is gone later. What the command is, it does not know, but
that it ends when it gets SIGTERM.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from stash.base.errors import UserError
from stash.base.interrupts import interrupted_by
from stash.base.spot.notice import Notice
from stash.elastic.synchronous.wanted import FOLDER, WantedCheckpoint
from stash.measure.host.notice_watch import NoticeWatch, hearing_sigterm

_LOOK_SECONDS = 0.2
_GRACE_SECONDS = 20.0
"""For the command to end when we are interrupted."""


class NodeGuard:
    """One command, and what it is told."""

    def __init__(self, command: Sequence[str], folder: Path, grace: float, say: Callable[[str], None]) -> None:
        """``folder``: of the checkpoints; ``grace``: seconds that a notice leaves which names no time."""
        self._command, self._folder, self._grace, self._say = command, folder, grace, say
        self._wanted: WantedCheckpoint | None = None
        self._ending = False

    def run(self, watch: NoticeWatch) -> int:
        """Until the command ends; its exit status, as a shell has it. Raises UserError if it cannot be started."""
        environment = {**os.environ, FOLDER: str(self._folder)}
        # In a session of its own: a signal to all of our group is a notice, and must not end it at once.
        with hearing_sigterm(watch.hear, self._grace), interrupted_by(signal.SIGHUP, signal.SIGQUIT), watch:
            try:
                process = subprocess.Popen(self._command, env=environment, start_new_session=True)
            except OSError as error:
                raise UserError(f"{self._command[0]} cannot be started: {error.strerror or error}") from error
            try:
                while process.poll() is None:
                    notice = watch.next(_LOOK_SECONDS)
                    if notice is not None:
                        self._hear(notice)
                    self._let_go(process)
            finally:
                _end(process)
        return process.returncode if process.returncode >= 0 else 128 - process.returncode

    def _hear(self, notice: Notice) -> None:
        if notice.kind == "at risk":
            self._say(f"{notice.source}: this machine may be taken away; it trains on")
        elif notice.kind == "withdrawn":
            self._wanted = None
            self._say(f"{notice.source}: the notice is withdrawn")
        elif self._wanted is None and not self._ending:
            left = self._grace if notice.deadline is None else notice.deadline - time.time()
            self._say(f"{notice.source}: this machine will be gone in {left:.0f} s; asking for a checkpoint")
            self._wanted = WantedCheckpoint(self._folder, left)

    def _let_go(self, process: subprocess.Popen[bytes]) -> None:
        if self._wanted is None or not self._wanted.settled():
            return
        said, self._wanted, self._ending = self._wanted, None, True
        if said.seconds is None:
            self._say(f"no checkpoint: {said.why}; ending the command")
        else:
            self._say(f"a checkpoint is whole after {said.seconds:.1f} s; ending the command")
        process.terminate()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Of a command that still runs: it is asked to, then made to."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
