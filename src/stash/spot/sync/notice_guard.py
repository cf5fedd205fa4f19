"""Runs around torchrun on a node of a synchronous job: makes of a notice a checkpoint, then an orderly end.

Without it, all that a notice changes is that the machine is gone later. What the command is, it does not know, but
that it ends when it gets SIGTERM.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from stash.api import Notice, NoticeWatch, list_descendants, process_status, sigterm_as_notice
from stash.core.end_tree import end_at_once
from stash.core.errors import UserError
from stash.core.interrupts import interrupted_by
from stash.spot.sync.checkpoint_request import FOLDER, CheckpointRequest

_LOOK_SECONDS = 0.2
_GRACE_SECONDS = 20.0
"""For the command to end when we are interrupted."""
_SIGTERM_SECONDS = 30.0
"""That a notice leaves which names no time, as SIGTERM of Kubernetes and Slurm does by default."""


class NodeGuard:
    """One command, and the notices that it gets: a checkpoint is asked for, and then the command is to end."""

    def __init__(self, command: Sequence[str], folder: Path, say: Callable[[str], None]) -> None:
        """``folder``: of the checkpoints."""
        self._command = command
        self._folder = folder
        self._say = say
        self._request: CheckpointRequest | None = None
        """The one that is waited for."""
        self._source = ""
        """What gave the notice for it."""
        self._ending = False
        """The command was asked to end."""

    def run(self, watch: NoticeWatch) -> int:
        """Wait until the command ends; return its exit status, as a shell has it. Raises UserError."""
        with (
            sigterm_as_notice(watch.receive, _SIGTERM_SECONDS),
            interrupted_by(signal.SIGHUP, signal.SIGQUIT),
            watch,
        ):
            process = _start(self._command, {FOLDER: str(self._folder)})
            try:
                while process.poll() is None:
                    notice = watch.next_notice(_LOOK_SECONDS)
                    if notice is not None:
                        self._handle_notice(notice)
                    if self._request is not None and self._request.is_settled():
                        self._end_with(self._request, process)
            finally:
                _end(process)
        return process.returncode if process.returncode >= 0 else 128 - process.returncode

    def _handle_notice(self, notice: Notice) -> None:
        if notice.kind == "at risk":
            self._say(f"{notice.source}: this machine may be taken away; it trains on")
        elif notice.kind == "withdrawn":
            if notice.source == self._source:  # another one's stands
                self._request = None
                self._say(f"{notice.source}: the notice is withdrawn")
        elif self._request is None and not self._ending:
            left = _SIGTERM_SECONDS if notice.deadline is None else notice.deadline - time.time()
            self._say(
                f"{notice.source}: this machine will be gone in {left:.0f} s; asking for a checkpoint"
            )
            self._request = CheckpointRequest(self._folder, left)
            self._source = notice.source

    def _end_with(self, request: CheckpointRequest, process: subprocess.Popen[bytes]) -> None:
        self._request = None
        self._ending = True
        how = f"no checkpoint: {request.why}"
        if request.seconds is not None:
            how = f"a checkpoint is whole after {request.seconds:.1f} s"
        self._say(f"{how}; ending the command")
        process.terminate()


def _start(command: Sequence[str], variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """The command, with these variables added; raises UserError if it cannot be started."""
    # In a session of its own: a signal to all of our group is a notice, and must not end it at once.
    try:
        return subprocess.Popen(command, env={**os.environ, **variables}, start_new_session=True)
    except OSError as error:
        raise UserError(f"{command[0]} cannot be started: {error.strerror or error}") from error


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command that still runs: ask it to, then end it with all that it has started."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
        known = {process.pid}

        def find() -> list[int]:
            known.update(list_descendants(process.pid))  # those that it started may outlive it
            return [
                number
                for number in known
                if (status := process_status(number)) is not None and not status.ended
            ]

        end_at_once(find)
        process.wait()
