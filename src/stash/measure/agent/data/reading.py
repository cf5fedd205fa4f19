"""What the processes that make batches read, and how cold it was.

Runs in the process that makes batches: a DataLoader worker, or the training process itself without
workers. In a cold block every data file is dropped from the page cache at the moment it is opened, so
whatever the samples are, they are read from storage; in a warm block the same file is only looked at, so
both blocks pay the same bookkeeping. Files that stay open or mapped are ``holding``'s.
"""

from __future__ import annotations

import itertools
import os
import stat
import sys
import sysconfig
import threading
import time
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, ClassVar

from stash.measure.agent.data.tally import COLD, Tally, tally
from stash.measure.linux import pagecache
from stash.measure.run.orders import current


class _Here(threading.local):
    """The slot of the batch that this thread is making, if it makes one."""

    slot: int | None = None


_here = _Here()


class _Seen:
    """Files that this process opened for its batches."""

    generation = -1
    opened: ClassVar[set[str]] = set()
    """In the block under way."""
    shared: ClassVar[set[str]] = set()
    """In any block, and they hold many samples: they are dropped before a block, not when they are opened."""


class recorded:  # noqa: N801 - a context manager reads as a verb
    """While open, files this thread opens are counted (and dropped from the cache in a cold block)."""

    def __init__(self, shared: Tally) -> None:
        self.shared = shared

    def __enter__(self) -> None:
        _hear_of_opened_files()
        self.slot = _slot()
        self.storage = storage_bytes(os.getpid())
        _here.slot = self.slot
        self.began = time.perf_counter_ns()

    def __exit__(self, *error: object) -> None:
        _here.slot = None
        took = time.perf_counter_ns() - self.began
        after = storage_bytes(os.getpid())
        read = 0 if after is None or self.storage is None else after - self.storage
        self.shared.add(self.slot, batches=1, making_ns=took, storage=read)


@cache
def _hear_of_opened_files() -> None:
    """Once in a process: an audit hook cannot be removed."""
    sys.addaudithook(_on_event)


def _slot() -> int:
    worker = sys.modules["torch.utils.data"].get_worker_info()
    return 0 if worker is None else int(worker.id) + 1


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    """Stays for the life of the process: it must be quick where it has nothing to do."""
    if event != "open" or _here.slot is None or (shared := tally()) is None:
        return
    path, _, flags = arguments
    if not isinstance(path, (str, bytes, os.PathLike)) or (flags or 0) & os.O_ACCMODE != os.O_RDONLY:
        return
    slot, _here.slot = _here.slot, None  # opening the file ourselves must not be counted
    try:
        _look_at(os.fsdecode(path), shared, slot)
    except OSError:
        pass  # the script's own open is about to fail too, and will say so
    finally:
        _here.slot = slot


def _look_at(path: str, shared: Tally, slot: int) -> None:
    if not is_data(path):
        return
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for its other end
        return
    mode, generation = shared.mode()
    if generation != _Seen.generation:
        _Seen.generation, _Seen.opened = generation, set()
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        again = path in _Seen.opened and path not in _Seen.shared
        if again and _was_read_in_part(descriptor, status.st_size):
            _Seen.shared.add(path)
            shared.add(slot, bytes=-status.st_size)  # which says nothing of the size of a sample
        if path in _Seen.shared:
            shared.add(slot, files=1)
            return
        pages, resident = examine(descriptor, status.st_size, cold=mode == COLD)
    finally:
        os.close(descriptor)
    _Seen.opened.add(path)
    shared.add(slot, files=1, bytes=status.st_size, pages=pages, resident=resident)


def _was_read_in_part(descriptor: int, size: int) -> bool:
    """Whether a file that is opened again in the same block holds many samples, not one.

    Dropping it with every sample would take away what the kernel has read ahead for the next ones.
    """
    found = pagecache.resident_pages(descriptor, size)
    return found is not None and found[0] * pagecache.PAGE < size / 2


def files_of_many_samples() -> frozenset[str]:
    """Those that this process opens again and again."""
    return frozenset(_Seen.shared)


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
    folder = os.path.dirname(os.path.abspath(path)) + os.sep
    return _holds_data(folder) and not path.endswith((".py", ".pyc", ".so")) and ".so." not in path


@cache
def _holds_data(folder: str) -> bool:
    orders = current()
    assert orders is not None
    if orders.data_root:
        return folder.startswith(os.path.abspath(orders.data_root) + os.sep)
    system = ("/proc/", "/sys/", "/dev/", "/etc/", "/usr/", "/lib", orders.folder, sys.base_prefix, sys.prefix)
    return not folder.startswith((*system, *sysconfig.get_paths().values()))


def examine_files(paths: Iterable[str], cold: bool) -> tuple[int, int]:
    """(pages, resident pages) of all ``paths`` that can be opened, dropped from the cache if ``cold``."""
    total = resident = 0
    for path in paths:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue  # removed meanwhile, or not ours to open
        try:
            pages, cached = examine(descriptor, os.fstat(descriptor).st_size, cold)
        finally:
            os.close(descriptor)
        total, resident = total + pages, resident + cached
    return total, resident


def files_below(root: str, limit: int = 200_000) -> Iterator[str]:
    """At most ``limit`` files under ``root``: data read by C code, of which no audit event tells."""
    found = (os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names)
    return itertools.islice(found, limit)


def storage_bytes(process: int) -> int | None:
    """Bytes a process has really fetched from storage (``/proc/PID/io``), or None where that is hidden."""
    try:
        with open(f"/proc/{process}/io") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("read_bytes"))
    except OSError:
        return None
