"""A command running on a node of a testbed: like ``subprocess.Popen``, its output kept.

Knows one process group; where it runs was decided by whoever started it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType


class Started:
    """A process in a group of its own; standard output and error go to one unnamed file."""

    def __init__(
        self, argv: Sequence[str], node: int, environment: Mapping[str, str], folder: Path | None, pipe: bool = False
    ) -> None:
        self.node = node
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as this object
        self.popen = subprocess.Popen(
            argv,
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if pipe else self._file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def returncode(self) -> int | None:
        return self.popen.returncode

    @property
    def output(self) -> str:
        """All it printed so far, on standard output and standard error; empty if a pipe was asked for."""
        size = os.fstat(self._file.fileno()).st_size
        return os.pread(self._file.fileno(), size, 0).decode(errors="replace")

    def poll(self) -> int | None:
        """Exit status, or None while it runs."""
        return self.popen.poll()

    def wait(self, timeout: float | None = None) -> int:
        """Exit status at its end; raises ``subprocess.TimeoutExpired`` after ``timeout`` seconds."""
        return self.popen.wait(timeout)

    def send_signal(self, number: int) -> None:
        """A signal to the process and to all of its group; nothing if it ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def terminate(self) -> None:
        """Ask the group to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the group by force."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Started:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self.popen.wait()
