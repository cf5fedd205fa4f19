"""Processes that a run on this machine started, told by a variable in their environment, wherever they went since."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

MARK = "STASH_SPOT_RUN"
"""Variable in the environment of everything that a run starts: its folder."""


def started(folder: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Process and environment of everything that the run of that folder started, but this process."""
    mark = f"{MARK}={folder}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            entries = path.read_bytes().split(b"\0")
            if mark in entries and int(path.parts[2]) != os.getpid():
                pairs = (entry.decode(errors="replace").partition("=") for entry in entries)
                yield int(path.parts[2]), {name: value for name, _, value in pairs}


def leftovers(folder: Path) -> set[int]:
    """All of them."""
    return {pid for pid, _ in started(folder)}


def kill_all(found: Callable[[], Collection[int]]) -> None:
    """SIGKILL to what is found, until nothing is: one may be starting another."""
    for _ in range(20):
        left = found()
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
