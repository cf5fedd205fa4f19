"""What the processes that make batches read, and dropping it from the page cache before a cold block reads it.

Runs in a DataLoader's worker, or in the training process without workers. In a cold block every data file is dropped
at the moment it is opened, so whatever the samples are, they are read from storage; in a warm block only the files of
a process's first batch are looked at, which is never timed. What any process maps stays in the cache, so before a
cold block all of them let go of their mappings first: workers are idle then and would run nothing before their next
batch, so a thread in each of them answers. Agreeing with other ranks is not known here.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import json
import os
import stat
import sys
import sysconfig
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from stash.core import pagecache
from stash.measure.agent.data.batches import is_in_worker
from stash.measure.agent.data.tally import (
    COLD,
    IDLE,
    Tally,
    find_tally,
    makes_for_another,
)
from stash.measure.linux import mappings, procfs
from stash.measure.linux.counters import bytes_read
from stash.measure.linux.processes import is_alive
from stash.measure.protocol.folder import HELD
from stash.measure.protocol.orders import current_orders

T = TypeVar("T")
_PERIOD = 0.05
"""Seconds between two looks of a worker's thread at the tally: 20 times 10 microseconds a second."""
_MAX_FILES = 200_000
_MAX_ANSWER_SECONDS = 2.0
"""For workers to answer; a cold block that one of them keeps from being cold says so by itself."""


class _OpenedFiles:
    """Files that this process opened for its batches."""

    def __init__(self) -> None:
        self.generation, self.mode = -1, COLD
        self.opened: set[str] = set()
        """In the block under way."""
        self.shared: set[str] = set()
        """In any block, and they hold many samples: they are dropped before a block, not when they are opened."""
        self._makers: set[object] = set()
        """Which have made a batch of that block. (By identity without ``id``, an event to all audit hooks.)"""

    def is_first_batch(self, mode: int, generation: int, maker: object) -> bool:
        """Whether this is the maker's first since the mode was set; several loaders' batches differ."""
        if generation != self.generation:
            self.mode, self.generation = mode, generation
            self.opened, self._makers = set(), set()
        first = maker not in self._makers
        self._makers.add(maker)
        return first


_files = _OpenedFiles()


class _ThreadReads(threading.local):
    """Of this thread, which makes batches."""

    counts: Counter[str] | None = None
    """What was found of the files of the batch under way, if they are looked at."""
    _adding_ns = 0
    """What counting took after the last batch, which is added with the next one's."""

    def record(self, shared: Tally, looks: bool, since: int, make: Callable[[], T]) -> T:
        """As ``record_reads``; ``looks``: at files, too."""
        before = bytes_read()
        self.counts = Counter(looked=1, threads=_threads_of_libraries()) if looks else None
        counts = self.counts
        spent, began = time.process_time_ns(), time.perf_counter_ns()
        try:
            return make()
        finally:
            ended, spent = time.perf_counter_ns(), time.process_time_ns() - spent
            self.counts, after = None, bytes_read()
            slot = shared.workers_slot() if is_in_worker() else 0
            looking = 0
            if counts is not None:
                looking = counts["own_ns"]
                shared.add(slot, counts)
            read = None if after is None or before is None else after.since(before)
            own = began - since + self._adding_ns
            shared.add_batch(slot, ended - began - looking, spent - looking, own, read)
            self._adding_ns = time.perf_counter_ns() - ended

    def look_at(self, path: object) -> None:
        """A file is about to be opened for reading."""
        counts = self.counts
        if counts is None:
            return
        self.counts = None  # opening the file ourselves must not be counted
        began = time.perf_counter_ns()
        try:
            if isinstance(path, (str, bytes, os.PathLike)):
                counts.update(_look_at(os.fsdecode(path)))
        except OSError:
            pass  # the script's own open is about to fail too, and will say so
        finally:
            counts["own_ns"] += time.perf_counter_ns() - began
            self.counts = counts


_here = _ThreadReads()
about_to_read = _here.look_at
"""Tell of a file that C code is about to open by itself; its path as its opener has it."""


def record_reads(maker: object, make: Callable[..., T], *arguments: Any) -> T:
    """``make(*arguments)``, a batch; what this process reads meanwhile is counted, unless nothing is just now.

    In a cold block files that it opens are dropped. What counting itself takes is kept separate (``own_ns``), so that
    it is not taken for making a batch.
    """
    since, shared = time.perf_counter_ns(), find_tally()
    if shared is None:
        return make(*arguments)
    mode, generation = shared.read_mode()
    if mode == IDLE:
        return make(*arguments)
    _audit_opened_files()
    looks = _files.is_first_batch(mode, generation, maker) or mode == COLD
    return _here.record(shared, looks, since, functools.partial(make, *arguments))


def _threads_of_libraries() -> int:
    """Threads that one operation in this process may use, of the library that uses most."""
    count_of_opencv: Callable[[], int] = getattr(sys.modules.get("cv2"), "getNumThreads", int)
    return int(max(sys.modules["torch"].get_num_threads(), count_of_opencv()))


@cache
def _audit_opened_files() -> None:
    """Once in a process: an audit hook cannot be removed."""
    sys.addaudithook(_audit_event)


def _audit_event(event: str, arguments: tuple[Any, ...]) -> None:
    """Stays for the life of the process: it must be quick where it has nothing to do."""
    if event == "open" and _here.counts is not None:
        path, _, flags = arguments
        if (flags or 0) & os.O_ACCMODE == os.O_RDONLY:
            _here.look_at(path)


def _look_at(path: str) -> dict[str, int]:
    """What there is to count of a file; in a cold block it is dropped from the page cache."""
    # opening a pipe would wait for its other end
    if not is_data(path) or not stat.S_ISREG(os.stat(path).st_mode):
        return {}
    with _opened(path) as descriptor:
        size = os.fstat(descriptor).st_size
        found = {"files": 1, "heads": min(size, io.DEFAULT_BUFFER_SIZE)}
        if path in _files.opened - _files.shared and _was_read_in_part(descriptor, size):
            _files.shared.add(path)
            found["bytes"] = -size  # which says nothing of the size of a sample
        if path not in _files.shared:
            found |= {"bytes": size, **examine_file(descriptor, path, _files.mode == COLD)}
            _files.opened.add(path)
    return found


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    """Its descriptor; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _was_read_in_part(descriptor: int, size: int) -> bool:
    """Whether a file that is opened again in the same block holds many samples, not one.

    Dropping it with every sample would take away what the kernel has read ahead for the next ones.
    """
    found = pagecache.resident_pages(descriptor, size)
    return found is not None and found[0] * pagecache.PAGE < size / 2


def examine_file(descriptor: int, path: str, cold: bool) -> dict[str, int]:
    """Counts of an open file as its reader will find it, after dropping it from the cache if ``cold``.

    ``pages`` and those ``resident``, where that may be known; its bytes are ``foreign`` where its file system keeps a
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
        if (shared := find_tally()) is not None:
            shared.name_file_system(kind)
    return counts


def is_data(path: str) -> bool:
    """Whether a path may hold training data: no code, no device, nothing of Stash's own."""
    folder = (
        os.path.dirname(path) if os.path.isabs(path) else os.path.dirname(os.path.abspath(path))
    )
    return _holds_data(folder) and not path.endswith((".py", ".pyc", ".so")) and ".so." not in path


@cache
def _holds_data(folder: str) -> bool:
    orders = current_orders()
    assert orders is not None
    folder = os.path.abspath(folder) + os.sep
    if orders.data_root:
        return folder.startswith(os.path.abspath(orders.data_root) + os.sep)
    system = ("/proc", "/sys", "/dev", "/etc", "/usr", "/lib", "/lib32", "/lib64", "/libx32")
    own = (orders.folder, sys.base_prefix, sys.prefix, *sysconfig.get_paths().values())
    return not folder.startswith(tuple(each.rstrip(os.sep) + os.sep for each in (*system, *own)))


def examine_files(paths: Iterable[str], cold: bool) -> Counter[str]:
    """Counts of all ``paths`` that can be opened, dropped from the cache if ``cold``."""
    total: Counter[str] = Counter()
    for path in paths:
        # removed meanwhile, or not ours to open
        with contextlib.suppress(OSError), _opened(path) as descriptor:
            total.update(examine_file(descriptor, path, cold))
    return total


def files_below(root: str) -> Iterator[str]:
    """Files under ``root``, the first many of them: data read by C code, of which no audit event tells."""
    found = (os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names)
    return itertools.islice(found, _MAX_FILES)


@cache
def answer_calls(process: int) -> None:
    """From now on this ``process``, if it is a worker, lets go of its mappings whenever a cold block begins.

    Called with its first batch; a fork inherits that and not the thread.
    """
    shared = find_tally()
    if shared is not None and makes_for_another():
        _write_answer(shared, -1, [])  # the caller must know whom to wait for
        threading.Thread(target=_answer_for_ever, args=(shared,), daemon=True, name="stash").start()


def _answer_for_ever(shared: Tally) -> None:
    answered = -1
    while os.path.exists(shared.path):  # the run's folder goes with the run
        mode, generation = shared.read_mode()
        if mode == COLD and generation != answered:
            _write_answer(shared, generation, _let_go())
            answered = generation
        time.sleep(_PERIOD)


def _write_answer(shared: Tally, generation: int, held: list[str]) -> None:
    own = _answer_path(shared, os.getpid())
    fresh = own.with_name(f"new.{own.name}")
    with contextlib.suppress(FileNotFoundError):  # the run is over, and its folder gone
        fresh.write_text(json.dumps([generation, held]))
        fresh.replace(own)


def _answer_path(shared: Tally, process: int | str) -> Path:
    path = Path(shared.path)
    return path.with_name(f"{HELD}{path.name}.{process}")


def let_go_everywhere(shared: Tally) -> list[str]:
    """Of a training process: it and its workers let go; the value is the data files that any of them holds.

    The tally must be in a cold block's mode, and the workers idle.
    """
    held = set(_let_go())
    _, generation = shared.read_mode()
    pattern = _answer_path(shared, "*")
    deadline = time.monotonic() + _MAX_ANSWER_SECONDS
    for path in pattern.parent.glob(pattern.name):
        worker = int(path.suffix.removeprefix("."))
        # one that has ended maps nothing
        while is_alive(worker) and time.monotonic() < deadline:
            answered, files = json.loads(path.read_text())
            if answered == generation:
                held.update(files)
                break
            time.sleep(_PERIOD / 10)
    return sorted(held)


def _let_go() -> list[str]:
    """Empty this process's tables of the data files that it holds; the value is their paths.

    Files of many samples that it opens again with each of them are listed too.
    """

    def is_worth_it(path: str) -> bool:
        return is_data(path) and os.path.isfile(path) and os.path.getsize(path) >= pagecache.PAGE

    held = [file for file in mappings.held_files() if is_worth_it(file.path)]
    mappings.let_go([region for file in held for region in file.regions])
    return [*_files.shared, *(file.path for file in held)]
