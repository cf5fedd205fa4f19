"""Heartbeats: a small file per rank that tells the launcher how far it got, overwritten at every step.

It is written as memory, since a system call for every step would be most of what a heartbeat takes. The kernel notes
such a write whenever it likes, so once a second the file's own time is set: by that, whoever comes after a killed run
knows until when it lived.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import time
from typing import NamedTuple

from stash.measure.run.folder import RunFolder

_FORMAT = struct.Struct("qqd")
_PID_BYTES = struct.calcsize("q")
_SINCE_THE_FIRST = struct.Struct("qd")
"""What changes from beat to beat."""
_DATED_SECONDS = 1.0


class Beat(NamedTuple):
    """How far a rank got."""

    pid: int
    steps: int
    """Optimizer steps so far."""
    when: float
    """The last sign of life (monotonic time, which all processes of a machine share; the wall clock may jump)."""


class Heart:
    """The rank's side."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._page: mmap.mmap | None = None
        self._dated = 0.0

    def beat(self, rank: int, steps: int) -> None:
        now = time.monotonic()
        if self._page is None:
            self._page = self._first(rank, Beat(os.getpid(), steps, now))
            self._dated = now
        _SINCE_THE_FIRST.pack_into(self._page, _PID_BYTES, steps, now)
        if now - self._dated > _DATED_SECONDS:
            self._dated = now
            with contextlib.suppress(OSError):  # the job itself may have removed the run's folder
                os.utime(self._folder.beat(rank))

    def _first(self, rank: int, beat: Beat) -> mmap.mmap:
        """The file as memory, with the first beat in it: nobody finds it empty, and it has its place on the disk."""
        descriptor = os.open(self._folder.beat(rank), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.pwrite(descriptor, _FORMAT.pack(*beat), 0)
            return mmap.mmap(descriptor, _FORMAT.size)
        finally:
            os.close(descriptor)


def beats(folder: RunFolder) -> dict[int, Beat]:
    """The last beat of every rank that has taken a step."""
    found: dict[int, Beat] = {}
    for path, rank in folder.beats().items():
        with contextlib.suppress(OSError, struct.error):
            found[rank] = Beat(*_FORMAT.unpack(path.read_bytes()))
    return found
