"""Finds and removes what testbeds left behind whose process is gone: after ``kill -9``, after a crash.

Touches only names made by ``stash.lab.testbed.names`` whose owner is dead. Knows nothing of testbeds in use, nor of
those of other PID namespaces.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from stash.lab.testbed import cgroups
from stash.lab.testbed.execute import run
from stash.lab.testbed.names import MARK, abandoned, out_of_sight

NAMESPACES = Path("/run/netns")


def leftovers() -> tuple[str, ...]:
    """What ``sweep`` would remove: namespaces by name, control groups by folder."""
    return (*_namespaces(abandoned), *map(str, _groups()))


def elsewhere() -> tuple[str, ...]:
    """Namespaces of testbeds that were made in another PID namespace, which ``sweep`` leaves alone."""
    return _namespaces(out_of_sight)


def sweep() -> tuple[str, ...]:
    """Remove all leftovers, ending the processes inside them; returns what was removed."""
    _end(_orphans())
    removed = []
    for name in _namespaces(abandoned):
        _end({int(pid) for pid in run(("ip", "netns", "pids", name)).stdout.split()})
        if run(("ip", "netns", "del", name)).returncode == 0:
            removed.append(name)
    for folder in _groups():
        with contextlib.suppress(OSError):
            _end({int(pid) for pid in (folder / "cgroup.procs").read_text().split()})
            _remove(folder)
            removed.append(str(folder))
    return tuple(removed)


def _namespaces(wanted: Callable[[str], bool]) -> tuple[str, ...]:
    if not NAMESPACES.is_dir():
        return ()
    return tuple(sorted(path.name for path in NAMESPACES.iterdir() if wanted(path.name)))


def _groups() -> Iterator[Path]:
    found = cgroups.find()
    for root in sorted({c.root for c in (found.cpu, found.io) if c is not None}):
        yield from sorted(path for path in Path(root).glob("stash-tb-*") if path.is_dir() and abandoned(path.name))


def _orphans() -> set[int]:
    """Processes started on a testbed whose owner is gone, told by their environment."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            for variable in path.read_bytes().split(b"\0"):
                name, _, value = variable.decode(errors="replace").partition("=")
                if name == MARK and abandoned(value):
                    found.add(int(path.parts[2]))
    return found - {os.getpid()}


def _end(processes: set[int]) -> None:
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _remove(folder: Path) -> None:
    deadline = time.monotonic() + 2.0
    while True:
        try:
            folder.rmdir()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
