"""What the loader's processes read, and how cold it was: counters shared with the training process.

Runs in the process that makes batches: a DataLoader worker, or the training process itself without
workers. In a cold block every data file is dropped from the page cache at the moment it is opened, so
whatever the samples are, they are read from storage; in a warm block the same file is only looked at, so
both blocks pay the same bookkeeping. Files held open or mapped are dropped once, at the block's start.
"""

from __future__ import annotations

import functools
import mmap
import os
import stat
import struct
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from stash.measure.linux import pagecache
from stash.measure.run import orders as plans

IDLE, WARM, COLD = 0, 1, 2
FIELDS = ("batches", "making_ns", "files", "bytes", "pages", "resident", "storage")
_SLOTS = 128
_SLOT = struct.calcsize("q") * len(FIELDS)
_HEADER = struct.calcsize("qq")
_board: Board | None = None
_owner: int | None = None
_hooked = False
_local = threading.local()
_swept = -1
_known: dict[str, bool] = {}


class Board:
    """A page of memory shared by a training process and its loader's workers: the mode, and their counters."""

    def __init__(self, path: str) -> None:
        size = _HEADER + _SLOTS * _SLOT
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(descriptor, size)
        self.path = path
        self.memory = mmap.mmap(descriptor, size)
        os.close(descriptor)

    def set_mode(self, mode: int) -> None:
        """Begin a block: zero the counters, then publish the mode under a new generation."""
        self.memory[_HEADER:] = bytes(len(self.memory) - _HEADER)
        _, generation = struct.unpack_from("qq", self.memory, 0)
        struct.pack_into("qq", self.memory, 0, mode, generation + 1)

    def mode(self) -> tuple[int, int]:
        """(mode, generation) in force."""
        mode, generation = struct.unpack_from("qq", self.memory, 0)
        return mode, generation

    def add(self, slot: int, **amounts: int) -> None:
        """Add to one process's counters; each slot has a single writer."""
        base = _HEADER + (slot % _SLOTS) * _SLOT
        for name, amount in amounts.items():
            at = base + 8 * FIELDS.index(name)
            struct.pack_into("q", self.memory, at, struct.unpack_from("q", self.memory, at)[0] + amount)

    def totals(self) -> dict[str, int]:
        """The counters summed over all processes since the mode was last set."""
        sums = dict.fromkeys(FIELDS, 0)
        for slot in range(_SLOTS):
            values = struct.unpack_from("q" * len(FIELDS), self.memory, _HEADER + slot * _SLOT)
            for name, value in zip(FIELDS, values, strict=True):
                sums[name] += value
        return sums


def board() -> Board | None:
    """The board of the training process this process makes batches for; None outside a profile."""
    global _board
    path = os.environ.get("STASH_BOARD")
    if _board is None and path is not None and os.path.exists(path):
        _board = Board(path)
    return _board


def own_board() -> Board | None:
    """The board of this training process, created on first use and inherited by its workers."""
    global _board, _owner
    plan = plans.current()
    if plan is not None and _owner != os.getpid():
        handle, path = tempfile.mkstemp(prefix="board.", dir=plan.folder)
        os.close(handle)
        os.environ["STASH_BOARD"] = path
        _board, _owner = Board(path), os.getpid()
    return _board


def wrap_fetchers(module: ModuleType) -> None:
    """Time the making of batches, and hear of every file opened for them."""
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        cls = getattr(module, name)
        cls.fetch = _timed(cls.fetch)


def _timed(fetch: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fetch)
    def timed(self: Any, possibly_batched_index: Any) -> Any:
        shared = board()
        if shared is None or shared.mode()[0] == IDLE:
            return fetch(self, possibly_batched_index)
        with recorded(shared):
            return fetch(self, possibly_batched_index)

    return timed


class recorded:  # noqa: N801 - a context manager reads as a verb
    """While open, files this thread opens are counted (and dropped from the cache in a cold block)."""

    def __init__(self, shared: Board) -> None:
        self.shared = shared

    def __enter__(self) -> None:
        global _hooked
        if not _hooked:
            _hooked = True
            sys.addaudithook(_on_event)
        self.slot = _slot()
        _sweep_held_files(self.shared, self.slot)
        self.storage = storage_bytes(os.getpid())
        _local.slot = self.slot
        self.began = time.perf_counter_ns()

    def __exit__(self, *error: object) -> None:
        _local.slot = None
        took = time.perf_counter_ns() - self.began
        after = storage_bytes(os.getpid())
        read = 0 if after is None or self.storage is None else after - self.storage
        self.shared.add(self.slot, batches=1, making_ns=took, storage=read)


def _slot() -> int:
    worker = sys.modules["torch.utils.data._utils.worker"].get_worker_info()
    return 0 if worker is None else int(worker.id) + 1


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook cannot be removed: it must be quick where it has nothing to do."""
    if event != "open" or getattr(_local, "slot", None) is None or _board is None:
        return
    path, _, flags = arguments
    if not isinstance(path, (str, bytes, os.PathLike)) or (flags or 0) & os.O_ACCMODE != os.O_RDONLY:
        return
    slot, _local.slot = _local.slot, None  # opening the file ourselves must not be counted
    try:
        _look_at(os.fsdecode(path), _board, slot)
    except OSError:
        pass  # the script's own open is about to fail too, and will say so
    finally:
        _local.slot = slot


def _look_at(path: str, shared: Board, slot: int) -> None:
    if not is_data(path):
        return
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for its other end
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pages, resident = examine(descriptor, status.st_size, cold=shared.mode()[0] == COLD)
    finally:
        os.close(descriptor)
    shared.add(slot, files=1, bytes=status.st_size, pages=pages, resident=resident)


def examine(descriptor: int, size: int, cold: bool) -> tuple[int, int]:
    """(pages, resident pages) of an open file as its reader will find it, after dropping it if ``cold``."""
    pages = -(-size // pagecache.PAGE)
    found = pagecache.resident_pages(descriptor, size)
    if cold:
        pagecache.evict(descriptor, dirty=found is None or found[1] > 0)
        found = pagecache.resident_pages(descriptor, size)
    return (pages, min(found[0], pages)) if found is not None else (0, 0)


def is_data(path: str) -> bool:
    """Whether a path may hold training data: no code, no device, nothing of Stash's own."""
    folder = os.path.dirname(os.path.abspath(path))
    known = _known.get(folder)
    if known is None:
        known = _known[folder] = _holds_data(folder + os.sep)
    return known and not path.endswith((".py", ".pyc", ".so")) and ".so." not in path


def _holds_data(folder: str) -> bool:
    plan = plans.current()
    assert plan is not None
    if plan.data_root:
        return folder.startswith(os.path.abspath(plan.data_root) + os.sep)
    system = ("/proc/", "/sys/", "/dev/", "/etc/", "/usr/", "/lib", plan.folder, sys.base_prefix, sys.prefix)
    return not folder.startswith((*system, *sysconfig.get_paths().values()))


def _sweep_held_files(shared: Board, slot: int) -> None:
    """Once per cold block and process: drop files that stay open or mapped across blocks."""
    global _swept
    mode, generation = shared.mode()
    if generation == _swept or mode != COLD:
        return
    _swept = generation
    for path, mappings in pagecache.held_files():
        if not is_data(path) or not os.path.isfile(path) or os.path.getsize(path) < pagecache.PAGE:
            continue
        pagecache.unmap_pages(mappings)
        try:
            _look_at(path, shared, slot)
        except OSError:
            continue  # deleted, or no longer ours to open


def sweep_folder(root: str, cold: bool, limit: int = 200_000) -> tuple[int, int]:
    """(pages, resident) of all files under ``root``, dropped from the cache if ``cold``.

    For data read by C code that no audit event reports; at most ``limit`` files.
    """
    total = resident = seen = 0
    for folder, _, names in os.walk(root):
        for name in names:
            try:
                descriptor = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            try:
                pages, cached = examine(descriptor, os.fstat(descriptor).st_size, cold)
            finally:
                os.close(descriptor)
            total, resident, seen = total + pages, resident + cached, seen + 1
            if seen >= limit:
                return total, resident
    return total, resident


def storage_bytes(process: int) -> int | None:
    """Bytes a process has really fetched from storage (``/proc/PID/io``), or None where that is hidden."""
    try:
        with open(f"/proc/{process}/io") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("read_bytes"))
    except OSError:
        return None
