"""Reads pieces of files as fast as the system lets it, and marks how far it had come when.

The same plain reads through the page cache or past it. Does not know whether what it reads is cached.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import time
from collections.abc import Iterator, Sequence

from stash.measure.probe.pieces import Piece
from stash.measure.probe.repeat import Mark

BLOCK = 1 << 20
_ALIGNMENT = 4096


def read(pieces: Sequence[Piece], seconds: float, readers: int = 1, direct: bool = False) -> tuple[list[Mark], int]:
    """(marks, pieces read) of reading ``pieces`` in order until all are read or the time is over.

    Each of ``readers`` threads takes the next piece when it is done with one. Raises OSError, as where the
    file system knows no O_DIRECT (EINVAL).
    """
    shared = _Shared(iter(pieces), time.perf_counter(), seconds)
    threads = [threading.Thread(target=shared.work, args=(direct,), daemon=True) for _ in range(readers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if shared.error is not None:
        raise shared.error
    return shared.marks, shared.done


class _Shared:
    """What the readers of one run have in common."""

    def __init__(self, pieces: Iterator[Piece], began: float, seconds: float) -> None:
        self._pieces, self._until = pieces, began + seconds
        self._lock = threading.Lock()
        self.marks: list[Mark] = [(began, 0)]
        self.done = 0
        self.error: OSError | None = None

    def work(self, direct: bool) -> None:
        buffer = mmap.mmap(-1, BLOCK)  # page-aligned, as O_DIRECT wants it
        while self.error is None and time.perf_counter() < self._until:
            with self._lock:
                piece = next(self._pieces, None)
            if piece is None:
                return
            try:
                self._one(piece, buffer, direct)
            except OSError as error:
                self.error = error

    def _one(self, piece: Piece, buffer: mmap.mmap, direct: bool) -> None:
        with _opened(piece, direct) as descriptor:
            at, end = piece.offset, piece.offset + piece.bytes
            while at < end and time.perf_counter() < self._until:
                wanted = min(BLOCK, end - at)
                if direct:
                    wanted = -(-wanted // _ALIGNMENT) * _ALIGNMENT
                got = min(os.preadv(descriptor, [memoryview(buffer)[:wanted]], at), end - at)
                if got <= 0:
                    break
                at += got
                with self._lock:
                    self.marks.append((time.perf_counter(), self.marks[-1][1] + got))
        if at >= end:
            with self._lock:
                self.done += 1


@contextlib.contextmanager
def _opened(piece: Piece, direct: bool) -> Iterator[int]:
    descriptor = os.open(piece.path, os.O_RDONLY | os.O_CLOEXEC | (os.O_DIRECT if direct else 0))
    try:
        yield descriptor
    finally:
        os.close(descriptor)
