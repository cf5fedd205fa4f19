"""Machines that a rehearsal plays on: hosts of an emulated cluster, or this machine for all; and what runs there.

A host is known by the name of the member that it is of. What runs on it, and why it is taken away, is not known here.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from stash.core.errors import StashError
from stash.core.interrupts import postponed
from stash.lab.testbed.bed import Started, Testbed
from stash.measure.linux.processes import end_at_once

HEAD = "head"
"""The name of what no revocation takes."""
MARK = "STASH_SPOT_RUN"
"""Variable in the environment of everything that a run starts: its folder."""


def started(folder: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Process and environment of everything that the run of that folder started, wherever it went, but this one."""
    mark = f"{MARK}={folder}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            entries = path.read_bytes().split(b"\0")
            if mark in entries and int(path.parts[2]) != os.getpid():
                pairs = (entry.decode(errors="replace").partition("=") for entry in entries)
                yield int(path.parts[2]), {name: value for name, _, value in pairs}


def leftovers(folder: Path) -> list[int]:
    """Find all processes of the rehearsal that still run."""
    return [number for number, _ in started(folder)]


class ThisMachine:
    """One host for everybody: who loses a member ends its processes."""

    def __init__(self, folder: Path) -> None:
        """``folder``: of the run, by which its processes are found."""
        self._folder = folder
        self._started: list[Started] = []

    def start(self) -> None:
        """Do nothing: this machine is there."""

    def address(self, name: str) -> str:
        return "127.0.0.1"

    def run(self, name: str, command: Sequence[str], variables: Mapping[str, str]) -> Started:
        self._started.append(Started(command, 0, {**os.environ, **variables}, None))
        return self._started[-1]

    def lose(self, name: str) -> None:
        """Do nothing: only the processes end."""

    def close(self) -> None:
        with postponed():
            end_at_once(lambda: leftovers(self._folder))
            for each in self._started:
                each.wait()


class EmulatedHosts:
    """A host for the head and for every member, and spare ones for successors."""

    def __init__(self, names: Sequence[str], spares: int) -> None:
        self._hosts = {name: number for number, name in enumerate((HEAD, *names))}
        self._free = list(range(len(self._hosts), len(self._hosts) + spares))
        self.bed = Testbed(len(self._hosts) + spares, verify=False)

    def start(self) -> None:
        """Get ready; raises StashError."""
        self.bed.start()

    def number(self, name: str) -> int:
        """Number a member's host; raises StashError if none is left, which the number of spares should rule out."""
        if name not in self._hosts:
            if not self._free:
                raise StashError(f"there is no emulated host left for {name}")
            self._hosts[name] = self._free.pop(0)
        return self._hosts[name]

    def address(self, name: str) -> str:
        """The address of a member's host, the same as before if it had one; raises StashError if none is left."""
        return self.bed.address(self.number(name))

    def shape(self, name: str, rate: float) -> None:
        """Let the link of a member's host carry so many bytes per second, each way."""
        self.bed.set_network(self.number(name), rate)

    def run(self, name: str, command: Sequence[str], variables: Mapping[str, str]) -> Started:
        """Start a command there; its output is kept."""
        return self.bed.run(command, self.number(name), variables)

    def lose(self, name: str) -> None:
        """Take the machine away without a word, and whatever runs on it."""
        self.bed.kill(self.number(name))

    def close(self) -> None:
        self.bed.close()


def last_line(text: str) -> str:
    """The last line that a program printed."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it printed nothing")
