"""What agents leave while they measure: the journal, a message a line, and heartbeats. Standard library only.

The journal is what the leader measured; its launcher follows it, other nodes get a copy. One writer each, and none
waits for another.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import time
from typing import NamedTuple

from stash.core.jsonl import TO_ADD, Tail, add_lines, append_lines
from stash.measure.protocol.folder import RunFolder, lock
from stash.measure.protocol.messages import (
    LadderEnded,
    Message,
    Payload,
    decode_message,
    encode_message,
)


class Journal:
    """The writing end, in the leader's process."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    def write(self, *messages: Message | Payload) -> None:
        """Add messages, all at once."""
        add_lines(
            self._open_file(),
            "".join(f"{encode_message(message)}\n" for message in messages).encode(),
        )

    def claim(self) -> bool:
        """Be this launch's one writer; False if another live process is, or if one has written its last message."""
        return lock(self._open_file()) is not False and not has_ended(self._folder)

    def _open_file(self) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(self._folder.journal, TO_ADD | os.O_CREAT, 0o644)
        return self._descriptor


def new_messages(journal: Tail) -> list[Message]:
    """The messages since the last call; raises StashError for a line that is none."""
    return [decode_message(line) for line in journal.read_new_lines()]


def has_ended(folder: RunFolder) -> bool:
    """Whether the leader has written its last message."""
    return any(isinstance(message, LadderEnded) for message in new_messages(Tail(folder.journal)))


class JournalCopy:
    """The leader's journal, carried to every other node with the leader's decisions: it outlives the leader's node.

    The leader's side reads what was added to the file; on another node, one rank of each folder appends it.
    """

    def __init__(self, folder: RunFolder, writes: bool) -> None:
        self._source, self._target, self._writes = Tail(folder.journal), folder.copy, writes

    def read_news(self) -> bytes:
        """What the leader wrote since the last call."""
        return self._source.read_new_bytes()

    def append_news(self, news: bytes) -> None:
        """Add what came from the leader."""
        if self._writes and news:
            append_lines(self._target, news)


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
            # with the first beat in it: it is never found empty, and has its place on the disk
            descriptor = os.open(self._folder.beat_file(rank), os.O_RDWR | os.O_CREAT, 0o600)
            try:
                os.pwrite(descriptor, _FORMAT.pack(os.getpid(), steps, now), 0)
                self._page = mmap.mmap(descriptor, _FORMAT.size)
            finally:
                os.close(descriptor)
            self._dated = now
        _SINCE_THE_FIRST.pack_into(self._page, _PID_BYTES, steps, now)
        if now - self._dated > _DATED_SECONDS:
            self._dated = now
            with contextlib.suppress(OSError):  # the job itself may have removed the run's folder
                os.utime(self._folder.beat_file(rank))


def read_beats(folder: RunFolder) -> dict[int, Beat]:
    """The last beat of every rank that has taken a step."""
    found: dict[int, Beat] = {}
    for path, rank in folder.list_beat_files().items():
        with contextlib.suppress(OSError, struct.error):
            found[rank] = Beat(*_FORMAT.unpack(path.read_bytes()))
    return found
