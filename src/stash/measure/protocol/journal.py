"""What agents leave while they measure: the journal, a message a line, and heartbeats. Standard library only.

The journal is what the leader measured; its launcher follows it, other nodes get a copy. One writer each, and none
waits for another. Each line is written whole, so a killed run leaves every finished one readable.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import time
from pathlib import Path
from typing import BinaryIO, NamedTuple

from stash.measure.protocol.folder import RunFolder, lock
from stash.measure.protocol.messages import LadderEnded, Message, Payload, decode, encode


class Journal:
    """The writing end, in the leader's process."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    def write(self, *messages: Message | Payload) -> None:
        """Add messages, all at once."""
        lines = "".join(f"{encode(message)}\n" for message in messages).encode()
        while lines:  # a large job's are more than one call may take
            lines = lines[os.write(self._open(), lines) :]

    def claim(self) -> bool:
        """Be this launch's one writer; False if another live process is, or if one has written its last message."""
        return lock(self._open()) is not False and not ended(self._folder)

    def _open(self) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(self._folder.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        return self._descriptor


class Tail:
    """Follows a growing file of lines; kept open, so that what was written before somebody removed it is read."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0
        self._file: BinaryIO | None = None

    def lines(self) -> list[bytes]:
        """The lines completed since the last call."""
        data = self.news()
        whole = data[: data.rfind(b"\n") + 1]
        self._at -= len(data) - len(whole)
        return whole.splitlines()

    def messages(self) -> list[Message]:
        """The same, of a journal."""
        return [decode(line) for line in self.lines()]

    def news(self) -> bytes:
        """All that was added since the last call, whole lines or not; nothing while there is no such file."""
        if self._file is None:
            try:
                self._file = self._path.open("rb")
            except FileNotFoundError:
                return b""
        self._file.seek(self._at)
        data = self._file.read()
        self._at += len(data)
        return data


def ended(folder: RunFolder) -> bool:
    """Whether the leader has written its last message."""
    return any(isinstance(message, LadderEnded) for message in Tail(folder.journal).messages())


class JournalCopy:
    """The leader's journal, carried to every other node with the leader's decisions: it outlives the leader's node.

    The leader's side reads what was added to the file; on another node, one rank of each folder appends it.
    """

    def __init__(self, folder: RunFolder, writes: bool) -> None:
        self._source, self._target, self._writes = Tail(folder.journal), folder.copy, writes

    def news(self) -> bytes:
        """What the leader wrote since the last call."""
        return self._source.news()

    def take(self, news: bytes) -> None:
        """Add what came from the leader."""
        if self._writes and news:
            with self._target.open("ab") as file:
                file.write(news)


# A heartbeat is a small file per rank, overwritten at every step. It is written as memory, since a system call for
# every step would be most of what it takes. The kernel notes such a write whenever it likes, so once a second the
# file's own time is set: by that, whoever comes after a killed run knows until when it lived.

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
        """The file as memory, with the first beat in it: it is never found empty, and has its place on the disk."""
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
