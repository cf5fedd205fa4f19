"""Which pieces of which files are read, and how.

Does not know whether what it reads is cached, nor what a rate is.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stash.core import pagecache
from stash.measure.probe.exchanges import Mark

PIECE_BYTES = 16 << 20
LARGE = PIECE_BYTES
"""Files from this size on are read front to back; smaller ones whole, in random order."""
_MAX_SEEN, _MAX_CHOSEN, _MAX_PIECES = 20_000, 2_000, 64
_MAX_WRITTEN, _OF_FREE = 256 << 20, 0.1
_SYNC_EVERY = 16 << 20


@dataclass(frozen=True)
class Piece:
    """A stretch of a file."""

    path: Path
    offset: int
    bytes: int


@dataclass(frozen=True)
class ChosenFiles:
    """What one pattern reads, and the typical size of a file."""

    pieces: tuple[Piece, ...]
    file_bytes: int
    where: Path

    def halves(self) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
        """Two sets that share no piece, so that reading one leaves the other unread."""
        middle = (len(self.pieces) + 1) // 2
        return self.pieces[:middle], self.pieces[middle:]


def choose_from_data(data: Path) -> tuple[ChosenFiles | None, ChosenFiles | None]:
    """(pieces of large files, small files whole in random order) below ``data``; None where there are too few.

    Files that are not in the page cache come first: a storage server or a hypervisor keeps a cache that cannot be
    emptied from here, and what the machine has not read lately is least likely to be in it.
    """
    found = _list_files(data)
    random.shuffle(found)
    found = sorted(
        found[:_MAX_CHOSEN], key=lambda file: resident_fraction([Piece(file[0], 0, file[1])]) or 0.0
    )
    large = [(path, size) for path, size in found if size >= LARGE]
    small = [(path, size) for path, size in found if size < LARGE]
    sliced = [
        Piece(path, offset, PIECE_BYTES)
        for path, size in large
        for offset in range(0, size - PIECE_BYTES + 1, PIECE_BYTES)
    ]
    front_to_back = (
        ChosenFiles(tuple(sliced[:_MAX_PIECES]), large[0][1], data) if len(sliced) > 1 else None
    )
    whole = tuple(Piece(path, 0, size) for path, size in small)
    typical = sum(size for _, size in small) // max(1, len(small))
    return front_to_back, ChosenFiles(whole, typical, data) if len(whole) >= 16 else None


def _list_files(root: Path) -> list[tuple[Path, int]]:
    """Regular files below a folder (or the file itself) with their sizes; stops after many."""
    if root.is_file():
        return [(root, root.stat().st_size)]
    found: list[tuple[Path, int]] = []
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            with contextlib.suppress(OSError):
                if (
                    path.is_file()
                    and os.access(path, os.R_OK)
                    and (size := path.stat().st_size) > 0
                ):
                    found.append((path, size))
            if len(found) >= _MAX_SEEN:
                return found
    return found


def write_files(folder: Path, file_bytes: int, count: int, seconds: float) -> ChosenFiles | None:
    """Up to ``count`` new files of random bytes, flushed to storage; fewer when time or space is short.

    All files in ``folder`` together stay below 256 MB and a tenth of the free space. None if not even two
    fit. Raises OSError where nothing can be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(dir=folder))
    present = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    room = min(_MAX_WRITTEN, _OF_FREE * shutil.disk_usage(folder).free) - present
    end = time.monotonic() + seconds
    pieces: list[Piece] = []
    for number in range(min(count, int(room // file_bytes))):
        if time.monotonic() > end:
            break
        path = place / f"{number:05d}"
        with path.open("wb", buffering=0) as file:
            for start in range(0, file_bytes, _SYNC_EVERY):
                file.write(os.urandom(min(_SYNC_EVERY, file_bytes - start)))
            os.fdatasync(file.fileno())
        pieces.append(Piece(path, 0, file_bytes))
    return ChosenFiles(tuple(pieces), file_bytes, folder.parent) if len(pieces) > 1 else None


def evict_pieces(pieces: Sequence[Piece]) -> None:
    """Drop the files of all pieces from the page cache."""
    for path in {piece.path for piece in pieces}:
        with contextlib.suppress(OSError), path.open("rb") as file:
            pagecache.evict(file.fileno(), dirty=True)


def resident_fraction(pieces: Sequence[Piece]) -> float | None:
    """Fraction of the pieces' pages in the page cache, None where the kernel does not say.

    Of a file read in part, all its cached pages are taken to belong to its pieces.
    """
    cached = pages = 0
    sizes: dict[Path, int] = {}
    for piece in pieces:
        sizes[piece.path] = sizes.get(piece.path, 0) + -(-piece.bytes // pagecache.PAGE)
    for path, wanted in sizes.items():
        with contextlib.suppress(OSError), path.open("rb") as file:
            found = pagecache.resident_pages(file.fileno(), os.fstat(file.fileno()).st_size)
            if found is None:
                return None
            cached, pages = cached + min(found[0], wanted), pages + wanted
    return cached / pages if pages else None


BLOCK = 1 << 20
_ALIGNMENT = 4096


def read_pieces(
    pieces: Sequence[Piece], seconds: float, readers: int = 1, direct: bool = False
) -> tuple[list[Mark], int]:
    """(marks, pieces read) of reading ``pieces`` in order until all are read or the time is over.

    Each of ``readers`` threads takes the next piece when it is done with one. The same plain reads through the page
    cache or past it (``direct``). Raises OSError, as where the file system knows no O_DIRECT (EINVAL).
    """
    lock, left = threading.Lock(), iter(pieces)
    began = time.perf_counter()
    marks: list[Mark] = [(began, 0)]
    errors: list[OSError] = []
    done = 0

    def take(piece: Piece, buffer: mmap.mmap) -> None:
        nonlocal done
        descriptor = os.open(
            piece.path, os.O_RDONLY | os.O_CLOEXEC | (os.O_DIRECT if direct else 0)
        )
        try:
            at, end = piece.offset, piece.offset + piece.bytes
            while at < end and time.perf_counter() < began + seconds:
                wanted = min(BLOCK, end - at)
                if direct:
                    wanted = -(-wanted // _ALIGNMENT) * _ALIGNMENT
                got = min(os.preadv(descriptor, [memoryview(buffer)[:wanted]], at), end - at)
                if got <= 0:
                    break
                at += got
                with lock:
                    marks.append((time.perf_counter(), marks[-1][1] + got))
        finally:
            os.close(descriptor)
        with lock:
            done += at >= end

    def work() -> None:
        buffer = mmap.mmap(-1, BLOCK)  # page-aligned, as O_DIRECT wants it
        while not errors and time.perf_counter() < began + seconds:
            with lock:
                piece = next(left, None)
            if piece is None:
                return
            try:
                take(piece, buffer)
            except OSError as error:
                errors.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(readers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return marks, done
