"""The ring in which a rank leaves its stamped steps: a file of fixed size, mapped by the rank and by who listens.

A page of head, then rows of doubles, the oldest overwritten. The rank takes no lock and makes no system call for a
step; who listens reads a row only once it is whole, and counts what was overwritten before. Seconds are those of the
machine's monotonic clock, which all its processes share. Standard library only.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any


class StepStage(IntEnum):
    """What a training thread does, in the order of a step that begins where an optimizer stepped.

    The value is the place in a row of the seconds that it took.
    """

    BETWEEN = 3
    """From the optimizer's step to the first input: logging, validation, checkpoints."""
    INPUT = 4
    """Waiting for a loader."""
    TRANSFER = 5
    """From the batch to the model, where there is a device to copy to."""
    FORWARD = 6
    BACKWARD = 7
    """Until this rank's last gradient is ready."""
    EXCHANGE = 8
    """From there to the end of the backward pass."""
    COLLECTIVE = 9
    """Inside other collectives that the script calls."""
    OPTIMIZER = 10
    """From the backward pass to the end of the optimizer's step."""
    EPOCH_START = 11
    """From asking a loader for an iterator to its first batch; this one and those below: of watched runs only."""
    EVALUATION = 12
    """Forward passes that no step uses, and their batches."""
    CHECKPOINT = 13
    COLLECTOR = 14
    """Python's, in full collections."""
    COMPILATION = 15
    """Of torch.compile, for the first time or again."""


LOADERS = 4
"""With waits of their own in a row; what any further ones make a step wait for is added to the last one's."""
NUMBER, BEGAN, ENDED = 0, 1, 2
DELAY = StepStage.COMPILATION + 1
INPUT_DELAY, EXCHANGE_DELAY, SWITCHES, INPUTS = range(DELAY + 1, DELAY + 5)
GRADIENTS = INPUTS + LOADERS
FIELDS = GRADIENTS + 1
"""Places of the other numbers of a row, as ``StampedStep`` names them, and how many there are."""
ROW = struct.Struct("d" * FIELDS)
ROWS = 1150
HEAD = 4096
SIZE = HEAD + ROWS * ROW.size
_MAGIC = b"stash.05"
_FIXED = struct.Struct("8s qqqqqd")
"""Magic, rank, ranks, local rank, node, process, Unix time less the monotonic clock."""
_LIVE = 64
"""Where the numbers begin that change meanwhile: rows so far, the stage, whether training is over, and how many
requests the listener has left beside the ring."""
_TEXT = 1024
_TEXT_BYTES = 512
_LOADER_NAMES, _DEVICE, _NOTE, _UNSEEN = range(4)


@dataclass(frozen=True)
class StampedStep:
    """One step of one rank; seconds."""

    number: int
    began: float
    ended: float
    stages: tuple[float, ...]
    """Of each ``StepStage``, in their order."""
    delay: float
    """In which the training thread was ready to run and had no core."""
    input_delay: float
    exchange_delay: float
    switches: int
    """Involuntary context switches of the thread so far."""
    inputs: tuple[float, ...]
    """Of the stage ``INPUT``, by loader."""
    gradients: bool = True
    """Whether it was seen when the last gradient was ready; else ``BACKWARD`` holds the exchange."""

    def seconds_in(self, stage: StepStage) -> float:
        """Seconds of that stage."""
        return self.stages[stage - StepStage.BETWEEN]


def _parse_row(row: Sequence[float]) -> StampedStep:
    return StampedStep(
        int(row[NUMBER]),
        row[BEGAN],
        row[ENDED],
        tuple(row[StepStage.BETWEEN : DELAY]),
        row[DELAY],
        row[INPUT_DELAY],
        row[EXCHANGE_DELAY],
        int(row[SWITCHES]),
        tuple(row[INPUTS:GRADIENTS]),
        bool(row[GRADIENTS]),
    )


def _read_rows(memory: Any, first: int, end: int) -> list[tuple[float, ...]]:
    return [ROW.unpack_from(memory, HEAD + at % ROWS * ROW.size) for at in range(first, end)]


class StepRing:
    """The rank's side. ``live``: doubles that others see at once: the stage, and 1 once training is over; and the
    number of the listener's last request, which it writes itself."""

    def __init__(
        self, path: Path | None = None, rank: int = 0, ranks: int = 1, local: int = 0, node: int = 0
    ) -> None:
        if path is None:
            self._memory = mmap.mmap(-1, SIZE)
        else:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                # a full disk is said here, and kills nobody later (SIGBUS)
                os.posix_fallocate(descriptor, 0, SIZE)
                self._memory = mmap.mmap(descriptor, SIZE)
            finally:
                os.close(descriptor)
        offset = time.time() - time.monotonic()
        _FIXED.pack_into(self._memory, 0, _MAGIC, rank, ranks, local, node, os.getpid(), offset)
        numbers = memoryview(self._memory)[_LIVE : _LIVE + 32]
        self._count = numbers[:8].cast("q")
        self.live = numbers[8:].cast("d")
        self.live[0] = StepStage.BETWEEN
        self._written = 0

    def write(self, row: Sequence[float]) -> None:
        """Add a row of ``FIELDS`` numbers."""
        at = self._written
        ROW.pack_into(self._memory, HEAD + at % ROWS * ROW.size, *row)
        self._written = self._count[0] = at + 1

    def write_text(self, place: int, text: str) -> None:
        """Leave a text: the loaders' names, the device, what the agent has to say."""
        encoded = text.encode(errors="replace")[: _TEXT_BYTES - 1]
        begin = _TEXT + place * _TEXT_BYTES
        self._memory[begin : begin + _TEXT_BYTES] = encoded.ljust(_TEXT_BYTES, b"\0")

    def name_loaders(self, names: Sequence[str]) -> None:
        self.write_text(_LOADER_NAMES, "\n".join(names))

    def name_device(self, kind: str) -> None:
        self.write_text(_DEVICE, kind)

    def note(self, text: str) -> None:
        """Say once what went wrong."""
        self.write_text(_NOTE, text)

    def name_unseen(self, text: str) -> None:
        """How many collectives of how many of a step were issued by C++, and perhaps the seconds of one."""
        self.write_text(_UNSEEN, text)

    def rows(self, since: int) -> list[StampedStep]:
        """Those written from row number ``since`` on, as far as they are still there."""
        first = max(since, self._written - ROWS)
        return [_parse_row(row) for row in _read_rows(self._memory, first, self._written)]

    @property
    def rows_written(self) -> int:
        """Rows so far."""
        return self._written


@dataclass
class RingReader:
    """The listener's side of one rank's ring; raises ValueError for a file that is no ring."""

    path: Path
    read: int = 0
    """Rows that were read, or overwritten before they were, so far."""
    _memory: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        with self.path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < SIZE:
                raise ValueError(f"{self.path} is no ring of steps")
            self._memory = mmap.mmap(file.fileno(), SIZE, prot=mmap.PROT_READ)
        magic, *numbers, self.offset = _FIXED.unpack_from(self._memory)
        self.rank, self.ranks, self.local, self.node, self.process = numbers
        if magic != _MAGIC:
            raise ValueError(f"{self.path} is no ring of steps of this version of Stash")

    def _count_rows(self) -> int:
        return int(struct.unpack_from("q", self._memory, _LIVE)[0])

    def read_new(self) -> list[StampedStep]:
        """The rows since the last call that are still whole."""
        upto = self._count_rows()
        first = max(self.read, upto - ROWS)
        rows = _read_rows(self._memory, first, upto)
        # while they were copied the rank may have gone on
        safe = max(first, self._count_rows() + 1 - ROWS)
        self.read = upto
        return [_parse_row(row) for row in rows[safe - first :]]

    def read_state(self) -> tuple[StepStage, bool]:
        """What the rank does, and whether its training is over."""
        stage, done = struct.unpack_from("dd", self._memory, _LIVE + 8)
        return StepStage(int(stage)), bool(done)

    def write_request(self, number: int) -> None:
        """Tell the rank that request ``number`` lies in the ring's folder."""
        with self.path.open("r+b") as file, mmap.mmap(file.fileno(), HEAD) as head:
            struct.pack_into("d", head, _LIVE + 24, number)

    def _text(self, place: int) -> str:
        begin = _TEXT + place * _TEXT_BYTES
        return (
            bytes(self._memory[begin : begin + _TEXT_BYTES]).rstrip(b"\0").decode(errors="replace")
        )

    @property
    def loaders(self) -> list[str]:
        """Their names, in the order of ``StampedStep.inputs``."""
        return [name for name in self._text(_LOADER_NAMES).split("\n") if name]

    @property
    def device(self) -> str:
        return self._text(_DEVICE)

    @property
    def unseen_note(self) -> str:
        """As ``name_unseen`` left it; empty if there are none."""
        return self._text(_UNSEEN)

    @property
    def note(self) -> str:
        """What the agent has to say; empty if nothing."""
        return self._text(_NOTE)
