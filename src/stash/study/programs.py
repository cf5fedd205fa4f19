"""Programs of this machine, the one seam through which anything is started; and whether a cloud's list has a name.

A cell's command leads a process group of its own, so that Ctrl-C reaches the controller alone, and carries its
folder's name in its environment, so that a later controller finds it again. Its exit code is in a file, for
whoever comes after a controller that was killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from stash.api import find_processes
from stash.core.end_tree import end_at_once
from stash.study.study_folder import CellFolder

VARIABLE = "STASH_CELL"
_WRAPPED = 'trap : INT TERM HUP; status="$1"; shift; "$@"; echo $? >"$status.new" && mv "$status.new" "$status"'
"""Outlives what ends its command, and writes down how that ended."""
_MAX = 2**26
"""Characters kept of what a command printed."""


class CommandOutcome(NamedTuple):
    """A command that has ended."""

    code: int
    output: str


class SystemPrograms:
    """What a controller does to the world, and the clock it does it by."""

    def __init__(self) -> None:
        self._own: dict[Path, subprocess.Popen[bytes]] = {}
        # The limits of a run hold although somebody sets the clock, or the machine sleeps while others are paid for.
        self._booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)

    def has(self, program: str) -> bool:
        """Whether there is such a program."""
        return shutil.which(program) is not None

    def start(self, command: Sequence[str], work: Path, cell: CellFolder) -> None:
        """Start a cell's command in the folder ``work``; returns at once. Raises OSError."""
        # a study has its own
        kept = {name: value for name, value in os.environ.items() if name != "STASH_STORE"}
        with cell.log.open("wb") as log:
            process = subprocess.Popen(
                ["sh", "-c", _WRAPPED, "stash-cell", str(cell.status), *command],
                cwd=work,
                env={**kept, VARIABLE: str(cell.path)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._own[cell.path] = process
        cell.process.write_text(str(process.pid))

    def alive(self, cell: CellFolder) -> bool:
        """Whether the cell's command still runs, whoever started it."""
        own = self._own.get(cell.path)
        return own.poll() is None if own is not None else bool(self._members(cell))

    def interrupt(self, cell: CellFolder) -> None:
        """Ask it to end in order, as Ctrl-C does: by SIGTERM, for what a shell starts in the background gets no
        SIGINT."""
        with suppress(OSError, ValueError):
            leader = int(cell.process.read_text())
            if leader in self._members(cell):  # else its number may be another's by now
                os.killpg(leader, signal.SIGTERM)

    def kill(self, cell: CellFolder) -> None:
        """End it and all that it has started."""
        end_at_once(lambda: self._members(cell))
        own = self._own.get(cell.path)
        if own is not None:
            own.wait()

    def call(self, command: Sequence[str], seconds: float) -> CommandOutcome:
        """Run a command to its end, or for so long."""
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=seconds,
                errors="replace",
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            return CommandOutcome(1, f"it did not end within {seconds:g} s")
        except OSError as error:
            return CommandOutcome(1, f"{command[0]}: {error.strerror or error}")
        return CommandOutcome(done.returncode, done.stdout[-_MAX:])

    def now(self) -> float:
        """Seconds since 1970."""
        return self._booted + time.clock_gettime(time.CLOCK_BOOTTIME)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def _members(self, cell: CellFolder) -> list[int]:
        return find_processes(VARIABLE, str(cell.path))


def exit_code(cell: CellFolder) -> int | None:
    """Read the exit code of the cell's command; ``None`` if something ended it before it could end."""
    try:
        return int(cell.status.read_text())
    except (OSError, ValueError):
        return None


def is_gone(output: str, name: str) -> bool:
    """Whether what a cloud listed, a name at the beginning of each line, has ``name`` no more."""
    return not any(line.split()[:1] == [name] for line in output.splitlines())
