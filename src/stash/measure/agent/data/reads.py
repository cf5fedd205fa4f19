"""What the processes that make batches read, how cold it was, and how long it took; in shared counters."""

from __future__ import annotations

import io
import itertools
import mmap
import os
import stat
import struct
import sys
import sysconfig
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, ClassVar, TypeVar

from stash.core import pagecache
from stash.measure.linux import procfs
from stash.measure.linux.counters import bytes_read
from stash.measure.protocol.folder import TALLY
from stash.measure.protocol.orders import current

# Tally -----------------------------------------------------------------------------------------------------
# Counters shared by a training process and its loader's workers: what making batches read, and how long it took.
#
# A page of memory in the run's folder; each process adds to a slot of its own. Knows nothing of files or batches.

IDLE, WARM, COLD = 0, 1, 2
"""Modes: nothing is counted; counted; counted, and files are dropped from the page cache when they are opened."""
_NAME_BYTES = 32
VARIABLE = "STASH_TALLY"
"""The environment variable by which workers find the tally of their training process."""
_OF_EVERY_BATCH = ("batches", "making_ns", "cpu_ns", "own_ns", "called", "storage")
FIELDS = (
    *_OF_EVERY_BATCH, "not_reported", "looked", "files", "bytes", "heads", "pages", "resident", "foreign", "held",
)  # fmt: skip
"""What is counted; ``data/reading`` says of what."""
_SLOTS = 128
_HEADER = struct.Struct(f"qq{_NAME_BYTES}s")
_SLOT = struct.Struct("q" * len(FIELDS))
_BATCH = struct.Struct("q" * len(_OF_EVERY_BATCH))
_FIRST = _HEADER.size // struct.calcsize("q")
"""Where the slots begin among the page's numbers."""
_PLACES = {name: _FIRST + place for place, name in enumerate(FIELDS)}


class Tally:
    """The mode in force, and the counters of every process since it was set."""

    def __init__(self, path: str) -> None:
        size = _HEADER.size + _SLOTS * _SLOT.size
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(descriptor, size)
        self.path = path
        self._memory = mmap.mmap(descriptor, size)
        self._numbers = memoryview(self._memory).cast("q")
        os.close(descriptor)

    def set_mode(self, mode: int) -> None:
        """Begin a block: zero the counters, then publish the mode under a new generation."""
        self._memory[_HEADER.size :] = bytes(len(self._memory) - _HEADER.size)
        _, generation = self.mode()
        _HEADER.pack_into(self._memory, 0, mode, generation + 1, b"")

    def mode(self) -> tuple[int, int]:
        """(mode, generation) in force."""
        return self._numbers[0], self._numbers[1]

    def name_file_system(self, kind: str) -> None:
        """Say which file system with a cache of its own holds files of this block; the last one named stays."""
        mode, generation = self.mode()
        _HEADER.pack_into(self._memory, 0, mode, generation, kind.encode()[:_NAME_BYTES])

    @property
    def file_system(self) -> str | None:
        """The one named since the mode was last set."""
        name: bytes = _HEADER.unpack_from(self._memory, 0)[2]
        return name.rstrip(b"\0").decode() or None

    def add(self, slot: int, amounts: Mapping[str, int]) -> None:
        """Add to one process's counters; each slot has a single writer."""
        numbers, at = self._numbers, (slot % _SLOTS) * len(FIELDS)
        for name, amount in amounts.items():
            numbers[at + _PLACES[name]] += amount

    def add_batch(self, slot: int, making_ns: int, cpu_ns: int, own_ns: int, called: int, storage: int) -> None:
        """The same for a batch that was made."""
        at = _HEADER.size + (slot % _SLOTS) * _SLOT.size
        made, making, cpu, own, read, fetched = _BATCH.unpack_from(self._memory, at)
        after = (made + 1, making + making_ns, cpu + cpu_ns, own + own_ns, read + called, fetched + storage)
        _BATCH.pack_into(self._memory, at, *after)

    @property
    def own_ns(self) -> int:
        """What counting has taken in the training process itself, whose slot is the first."""
        return self._numbers[_PLACES["own_ns"]]

    def totals(self) -> dict[str, int]:
        """The counters summed over all processes since the mode was last set."""
        slots = _SLOT.iter_unpack(self._memory[_HEADER.size :])
        return dict(zip(FIELDS, map(sum, zip(*slots, strict=True)), strict=True))

    def makers(self) -> list[dict[str, int]]:
        """The counters of each process that made batches since the mode was last set, the training process first."""
        slots = (dict(zip(FIELDS, slot, strict=True)) for slot in _SLOT.iter_unpack(self._memory[_HEADER.size :]))
        return [counts for counts in slots if counts["batches"]]


class _Own:
    """The tally of this process, and the process that made it."""

    tally: Tally | None = None
    maker: int | None = None


def tally() -> Tally | None:
    """The tally of the training process this process makes batches for; None outside a profile."""
    if _Own.tally is None:
        path = os.environ.get(VARIABLE)
        if path is not None and os.path.exists(path):
            _Own.tally = Tally(path)
    return _Own.tally


def own_seconds(shared: Tally | None) -> float:
    """What counting has taken in the training process itself since the mode was set, where it makes batches."""
    return 0.0 if shared is None else shared.own_ns * 1e-9


def makes_for_another() -> bool:
    """Whether this process makes batches for a training process that it is not: it is a loader's worker."""
    return _Own.maker != os.getpid()


def own_tally() -> Tally | None:
    """The tally of this training process, created on first use and inherited by its workers."""
    orders = current()
    if orders is not None and _Own.maker != os.getpid():
        handle, path = tempfile.mkstemp(prefix=TALLY, dir=orders.folder)
        os.close(handle)
        os.environ[VARIABLE] = path
        _Own.tally, _Own.maker = Tally(path), os.getpid()
    return _Own.tally


# Reading ---------------------------------------------------------------------------------------------------
# What the processes that make batches read, and how cold it was.
#
# Runs in the process that makes batches: a DataLoader worker, or the training process itself without workers. In a
# cold block every data file is dropped from the page cache at the moment it is opened, so whatever the samples are,
# they are read from storage. In a warm block only the files of a process's first batch are looked at, which is
# never timed: looking takes longer than reading a small file out of memory. Files that stay open or mapped are
# ``holding``'s.

T = TypeVar("T")


class _Here(threading.local):
    """Of this thread, which makes batches."""

    counts: Counter[str] | None = None
    """What was found of the files of the batch under way, if they are looked at."""
    adding_ns = 0
    """What it took to add up the last batch's counts, which is told with the next one's."""


_here = _Here()


class _Seen:
    """Files that this process opened for its batches."""

    generation = -1
    mode = COLD
    opened: ClassVar[set[str]] = set()
    """In the block under way."""
    makers: ClassVar[set[object]] = set()
    """Which have made a batch of that block. (By identity without ``id``, which is an event to all audit hooks.)"""
    shared: ClassVar[set[str]] = set()
    """In any block, and they hold many samples: they are dropped before a block, not when they are opened."""


def recorded(shared: Tally | None, maker: object, since: int, make: Callable[..., T], *arguments: Any) -> T:
    """``make(*arguments)``, a batch; what this process reads meanwhile is counted, unless nothing is just now.

    In a cold block files that it opens are dropped. What counting itself takes, ``since`` that moment (nanoseconds)
    and afterwards, is kept separate (``own_ns``), so that it is not taken for making a batch.
    """
    mode, generation = shared.mode() if shared is not None else (IDLE, 0)
    if shared is None or mode == IDLE:
        return make(*arguments)
    _hear_of_opened_files()
    before = bytes_read()
    looks = _first_of_block(mode, generation, maker) or mode == COLD
    counts = _here.counts = Counter(looked=1) if looks else None
    spent = time.process_time_ns()
    began = time.perf_counter_ns()
    try:
        return make(*arguments)
    finally:
        ended, spent = time.perf_counter_ns(), time.process_time_ns() - spent
        _here.counts = None
        slot, own, called, storage = _slot(), 0, 0, 0
        after = bytes_read()
        if after is None or before is None:
            shared.add(slot, {"not_reported": 1})
        else:
            called, storage = after.called - before.called, after.storage - before.storage
        if counts is not None:
            own = counts.pop("own_ns", 0)
            shared.add(slot, counts)
        adding = time.perf_counter_ns()
        counting = began - since + _here.adding_ns + adding - ended
        shared.add_batch(slot, ended - began - own, spent - own, own + counting, called, storage)
        _here.adding_ns = time.perf_counter_ns() - adding


def _first_of_block(mode: int, generation: int, maker: object) -> bool:
    """Whether this is the maker's first batch since the mode was set; several loaders' batches differ."""
    if generation != _Seen.generation:
        _Seen.mode, _Seen.generation, _Seen.opened, _Seen.makers = mode, generation, set(), set()
    first = maker not in _Seen.makers
    _Seen.makers.add(maker)
    return first


@cache
def _hear_of_opened_files() -> None:
    """Once in a process: an audit hook cannot be removed."""
    sys.addaudithook(_on_event)


def _slot() -> int:
    worker = sys.modules["torch.utils.data"].get_worker_info()
    return 0 if worker is None else int(worker.id) + 1


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    """Stays for the life of the process: it must be quick where it has nothing to do."""
    if event != "open" or _here.counts is None:
        return
    path, _, flags = arguments
    if (flags or 0) & os.O_ACCMODE == os.O_RDONLY:
        heard(path)


def heard(path: object) -> None:
    """A file is about to be opened for reading; ``path`` as whoever opens it has it."""
    counts, _here.counts = _here.counts, None  # opening the file ourselves must not be counted
    if counts is None:
        return
    began = time.perf_counter_ns()
    try:
        if isinstance(path, (str, bytes, os.PathLike)):
            counts.update(_look_at(os.fsdecode(path)))
    except OSError:
        pass  # the script's own open is about to fail too, and will say so
    finally:
        counts["own_ns"] += time.perf_counter_ns() - began
        _here.counts = counts


def _look_at(path: str) -> dict[str, int]:
    """What there is to count of a file; in a cold block it is dropped from the page cache."""
    if not is_data(path):
        return {}
    if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait for its other end
        return {}
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        found = {"files": 1, "heads": min(size, io.DEFAULT_BUFFER_SIZE)}
        again = path in _Seen.opened and path not in _Seen.shared
        if again and _was_read_in_part(descriptor, size):
            _Seen.shared.add(path)
            found["bytes"] = -size  # which says nothing of the size of a sample
        if path in _Seen.shared:
            return found
        found |= {"bytes": size, **examine(descriptor, path, cold=_Seen.mode == COLD)}
    finally:
        os.close(descriptor)
    _Seen.opened.add(path)
    return found


def _was_read_in_part(descriptor: int, size: int) -> bool:
    """Whether a file that is opened again in the same block holds many samples, not one.

    Dropping it with every sample would take away what the kernel has read ahead for the next ones.
    """
    found = pagecache.resident_pages(descriptor, size)
    return found is not None and found[0] * pagecache.PAGE < size / 2


def files_of_many_samples() -> frozenset[str]:
    """Those that this process opens again and again."""
    return frozenset(_Seen.shared)


def examine(descriptor: int, path: str, cold: bool) -> dict[str, int]:
    """Counts of an open file as its reader will find it, after dropping it from the cache if ``cold``.

    ``pages`` and those ``resident``, unless nobody may know; its bytes are ``foreign`` where its file system keeps a
    cache of its own.
    """
    status = os.fstat(descriptor)
    size, pages = status.st_size, -(-status.st_size // pagecache.PAGE)
    kind = procfs.kind_of(path, status.st_dev)
    layered = kind in procfs.LAYERED
    found = pagecache.resident_pages(descriptor, size, layered)
    if cold and (found is None or any(found)):
        pagecache.evict(descriptor, dirty=found is None or layered or found[1] > 0)
        found = pagecache.resident_pages(descriptor, size, layered)
    counts = {} if found is None else {"pages": pages, "resident": min(found[0], pages)}
    if kind is not None and procfs.caches_itself(kind):
        counts["foreign"] = size
        if (shared := tally()) is not None:
            shared.name_file_system(kind)
    return counts


def is_data(path: str) -> bool:
    """Whether a path may hold training data: no code, no device, nothing of Stash's own."""
    folder = os.path.dirname(path) if os.path.isabs(path) else os.path.dirname(os.path.abspath(path))
    return _holds_data(folder) and not path.endswith((".py", ".pyc", ".so")) and ".so." not in path


@cache
def _holds_data(folder: str) -> bool:
    orders = current()
    assert orders is not None
    folder = os.path.abspath(folder) + os.sep
    if orders.data_root:
        return folder.startswith(os.path.abspath(orders.data_root) + os.sep)
    system = ("/proc/", "/sys/", "/dev/", "/etc/", "/usr/", "/lib", orders.folder, sys.base_prefix, sys.prefix)
    return not folder.startswith((*system, *sysconfig.get_paths().values()))


def examine_files(paths: Iterable[str], cold: bool) -> Counter[str]:
    """Counts of all ``paths`` that can be opened, dropped from the cache if ``cold``."""
    total: Counter[str] = Counter()
    for path in paths:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue  # removed meanwhile, or not ours to open
        try:
            total.update(examine(descriptor, path, cold))
        finally:
            os.close(descriptor)
    return total


def files_below(root: str, limit: int = 200_000) -> Iterator[str]:
    """At most ``limit`` files under ``root``: data read by C code, of which no audit event tells."""
    found = (os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names)
    return itertools.islice(found, limit)
