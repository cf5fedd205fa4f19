"""Heartbeats: a small file per rank that tells the launcher how far it got, overwritten at every step."""

from __future__ import annotations

import contextlib
import os
import struct
import time
from typing import NamedTuple

from stash.measure.run.folder import RunFolder

_FORMAT = "qqd"


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
        self._descriptor: int | None = None

    def beat(self, rank: int, steps: int) -> None:
        if self._descriptor is None:
            self._descriptor = os.open(self._folder.beat(rank), os.O_WRONLY | os.O_CREAT, 0o644)
        os.pwrite(self._descriptor, struct.pack(_FORMAT, os.getpid(), steps, time.monotonic()), 0)


def beats(folder: RunFolder) -> dict[int, Beat]:
    """The last beat of every rank that has taken a step."""
    found: dict[int, Beat] = {}
    for path, rank in folder.beats().items():
        with contextlib.suppress(OSError, struct.error):
            found[rank] = Beat(*struct.unpack(_FORMAT, path.read_bytes()))
    return found
