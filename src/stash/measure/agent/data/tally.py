"""Counters shared by a training process and its loader's workers: what making batches read, and how long it took.

A page of memory in the run's folder; each process adds to a slot of its own. Knows nothing of files or batches:
``data/reads`` says what is counted.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from collections.abc import Mapping

from stash.measure.linux.counters import BytesRead
from stash.measure.protocol.folder import TALLY
from stash.measure.protocol.orders import current_orders

IDLE, WARM, COLD = 0, 1, 2
"""Modes: nothing is counted; counted; counted, and files are dropped from the page cache when they are opened."""
_NAME_BYTES = 32
VARIABLE = "STASH_TALLY"
"""The environment variable by which workers find the tally of their training process."""
TOOK = tuple(f"took_{power}" for power in range(22))
"""Batches by what making one took: below 2^16 ns (66 us), then each twice as long as the one before."""
FIELDS = (
    "batches",
    "making_ns",
    "cpu_ns",
    "own_ns",
    "called",
    "storage",
    "not_reported",
    "looked",
    "threads",
    "files",
    "bytes",
    "heads",
    "pages",
    "resident",
    "foreign",
    "held",
    *TOOK,
)
_SLOTS = 128
"""The first is the training process's, the others are the workers'."""
_HEADER = struct.Struct(f"qq{_NAME_BYTES}s")
_SLOT = struct.Struct("q" * len(FIELDS))
_FIRST = _HEADER.size // struct.calcsize("q")
"""Where the slots begin among the page's numbers."""
_PLACES = {name: _FIRST + place for place, name in enumerate(FIELDS)}
_BATCHES, _MAKING, _CPU, _OWN, _CALLED, _STORAGE, _NOT_REPORTED, _TOOK = (
    _PLACES[name] for name in (*FIELDS[:7], TOOK[0])
)


class Tally:
    """The mode in force, and the counters of every process since it was set."""

    def __init__(self, path: str) -> None:
        size = _HEADER.size + _SLOTS * _SLOT.size
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        if os.fstat(descriptor).st_size < size:
            os.ftruncate(descriptor, size)
        self.path, self._worker, self._slot = path, -1, 0
        self._memory = mmap.mmap(descriptor, size)
        self._numbers = memoryview(self._memory).cast("q")
        os.close(descriptor)

    def set_mode(self, mode: int) -> None:
        """Begin a block: zero the counters, then publish the mode under a new generation."""
        self._memory[_HEADER.size :] = bytes(len(self._memory) - _HEADER.size)
        _, generation = self.read_mode()
        _HEADER.pack_into(self._memory, 0, mode, generation + 1, b"")

    def read_mode(self) -> tuple[int, int]:
        """(mode, generation) in force."""
        return self._numbers[0], self._numbers[1]

    def name_file_system(self, kind: str) -> None:
        """Name the file system with a cache of its own that holds files of this block; the last one named stays."""
        mode, generation = self.read_mode()
        _HEADER.pack_into(self._memory, 0, mode, generation, kind.encode()[:_NAME_BYTES])

    @property
    def file_system(self) -> str | None:
        """The one named since the mode was last set."""
        name: bytes = _HEADER.unpack_from(self._memory, 0)[2]
        return name.rstrip(b"\0").decode() or None

    def workers_slot(self) -> int:
        """This worker's own, whichever loader it is of: the next one, where as many before it have left a byte."""
        if self._worker != os.getpid():
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                os.write(descriptor, b"\0")
                claimed = os.lseek(descriptor, 0, os.SEEK_CUR) - len(self._memory)
            finally:
                os.close(descriptor)
            self._worker, self._slot = os.getpid(), 1 + (claimed - 1) % (_SLOTS - 1)
        return self._slot

    def add(self, slot: int, amounts: Mapping[str, int]) -> None:
        """Add to one process's counters; each slot has a single writer."""
        numbers, at = self._numbers, (slot % _SLOTS) * len(FIELDS)
        for name, amount in amounts.items():
            numbers[at + _PLACES[name]] += amount

    def add_batch(
        self, slot: int, making_ns: int, cpu_ns: int, own_ns: int, read: BytesRead | None
    ) -> None:
        """The same of a batch that was made, in nanoseconds: done for each, so by place and not by name."""
        numbers, at = self._numbers, (slot % _SLOTS) * len(FIELDS)
        numbers[at + _BATCHES] += 1
        numbers[at + _MAKING] += making_ns
        numbers[at + _CPU] += cpu_ns
        numbers[at + _OWN] += own_ns
        numbers[at + _TOOK + _power(making_ns)] += 1
        if read is None:
            numbers[at + _NOT_REPORTED] += 1
        else:
            numbers[at + _CALLED] += read.called
            numbers[at + _STORAGE] += read.storage

    @property
    def own_ns(self) -> int:
        """What counting has taken in the training process itself, whose slot is the first."""
        return self._numbers[_PLACES["own_ns"]]

    def sum_counters(self) -> dict[str, int]:
        """The counters summed over all processes since the mode was last set."""
        slots = self._read_slots()
        return {name: sum(slot[name] for slot in slots) for name in FIELDS}

    def list_makers(self) -> list[dict[str, int]]:
        """The counters of each process that made batches since the mode was last set, the training process first."""
        return [counts for counts in self._read_slots() if counts["batches"]]

    def _read_slots(self) -> list[dict[str, int]]:
        slots = _SLOT.iter_unpack(self._memory[_HEADER.size :])
        return [dict(zip(FIELDS, slot, strict=True)) for slot in slots]


def _power(nanoseconds: int) -> int:
    """Which of ``TOOK`` a batch that took so long is counted in."""
    return min(len(TOOK) - 1, max(0, nanoseconds >> 16).bit_length())


class _OwnTally:
    """The tally of this process, and the process that made it."""

    def __init__(self) -> None:
        self.tally: Tally | None = None
        self.maker: int | None = None

    def find(self) -> Tally | None:
        """The tally of the training process this process makes batches for; None outside a profile."""
        if self.tally is None:
            path = os.environ.get(VARIABLE)
            if path is not None and os.path.exists(path):
                self.tally = Tally(path)
        return self.tally

    def make(self) -> Tally | None:
        """The tally of this training process, created on first use and inherited by its workers."""
        orders = current_orders()
        if orders is not None and self.maker != os.getpid():
            handle, path = tempfile.mkstemp(prefix=TALLY, dir=orders.folder)
            os.close(handle)
            os.environ[VARIABLE] = path
            self.tally, self.maker = Tally(path), os.getpid()
        return self.tally


_own = _OwnTally()
find_tally, own_tally = _own.find, _own.make


def own_seconds(shared: Tally | None) -> float:
    """What counting has taken in the training process itself since the mode was set, where it makes batches."""
    return 0.0 if shared is None else shared.own_ns * 1e-9


def makes_for_another() -> bool:
    """Whether this process makes batches for a training process that it is not: it is a loader's worker."""
    return _own.maker != os.getpid()
