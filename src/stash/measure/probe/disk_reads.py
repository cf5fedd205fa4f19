"""Reading from the disk under the data: front to back and whole files in random order, cold, direct and warm.

Cold means dropped from this machine's page cache, with the kernel's own count as proof.
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stash.core import pagecache
from stash.core.records.host import DiskRead, Timing, Unmeasured
from stash.measure.probe.exchanges import Mark, equal_parts

PIECE_BYTES = 16 << 20
"""Files from this size on are read front to back, in pieces; smaller ones whole, in random order."""
_MAX_SEEN, _MAX_CHOSEN, _MAX_PIECES = 20_000, 2_000, 64
_MIN_SMALL = 16
_MAX_WRITTEN, _OF_FREE = 256 << 20, 0.1
_WRITING = 0.25
_SEQUENTIAL_FILES, _RANDOM_BYTES = 12, 256 << 20
_FILE_BYTES = 110_000
"""Of the files that are written to be read at random: about a picture of ImageNet."""
COLD_ENOUGH = 0.05
"""Fraction of pages that may stay in the cache in what is called a cold read."""
MANY = 8
_PARTS, _MIN_PARTS = 8, 3
_BURST = 0.15
"""Seconds: the kernel's own limits (blkio, io.max) hand out their bytes every tenth of a second."""
_AHEAD = 8 << 20
"""Bytes: readahead brings a few MB at once, which then seem to take no time."""
_BLOCK, _ALIGNMENT = 1 << 20, 4096

Reads = list[DiskRead | Unmeasured]


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


def measure(
    data: Path | None, scratch: Path, seconds: float, file_bytes: int = _FILE_BYTES
) -> Reads:
    """Every pattern in turn, within about ``seconds``, in files of ``data``, else in new ones in ``scratch``.

    ``scratch``: on the disk that is to be measured; it need not exist. ``file_bytes``: of the new files to be read at
    random.
    """
    found: Reads = []
    share = seconds / 2
    each = share * (1 - _WRITING) / 3
    for pattern in ("sequential", "random"):
        link = f"reads {pattern}"
        try:
            chosen = _choose_files(data, scratch, pattern, file_bytes, share * _WRITING)
        except OSError as error:
            why = f"no file can be written in {scratch.parent} ({error.strerror or error}); --data reads others"
            found.append(Unmeasured(link=link, why=why))
            continue
        if isinstance(chosen, Unmeasured):
            found.append(chosen)
            continue
        # Two sets that share no piece: reading one leaves the other unread.
        middle = (len(chosen.pieces) + 1) // 2
        first, second = chosen.pieces[:middle], chosen.pieces[middle:]
        if pattern == "sequential":
            found.append(_read(f"{link} direct", chosen, first, each, direct=True)[0])
            found.append(_read(f"{link} cold", chosen, second, each)[0])
            found.append(_read(f"{link} warm", chosen, second, each, cold=False)[0])
        else:
            one, read = _read(f"{link} cold", chosen, first, each)
            many, _ = _read(f"{link} cold, {MANY} at once", chosen, second, each, readers=MANY)
            warm, _ = _read(f"{link} warm", chosen, first[:read], each, cold=False)
            found += [one, many, warm]
        shutil.rmtree(scratch, ignore_errors=True)  # the next pattern may need the space
    return found


def _choose_files(
    data: Path | None, scratch: Path, pattern: str, file_bytes: int, seconds: float
) -> ChosenFiles | Unmeasured:
    """The data set's files for a pattern, else new ones; raises OSError where those cannot be written."""
    link, is_sequential = f"reads {pattern}", pattern == "sequential"
    if data is not None:
        large, small = choose_from_data(data)
        own = large if is_sequential else small
        if own is not None:
            return own
        if scratch.parent.stat().st_dev != data.stat().st_dev:
            what = f"too few files {'of 16 MB or more' if is_sequential else 'below 16 MB'}"
            elsewhere = "the current folder is on another disk; run it from the data's disk"
            return Unmeasured(link=link, why=f"{data} holds {what}, and {elsewhere}")
    size = PIECE_BYTES if is_sequential else file_bytes
    count = _SEQUENTIAL_FILES if is_sequential else max(_MIN_SMALL, _RANDOM_BYTES // size)
    room = f"less than {size * 2 / _OF_FREE / 1e6:.0f} MB are free at {scratch.parent}"
    written = write_files(scratch, size, count, seconds)
    return written or Unmeasured(link=link, why=f"{room}; free some space")


def choose_from_data(data: Path) -> tuple[ChosenFiles | None, ChosenFiles | None]:
    """(pieces of large files, small files whole in random order) below ``data``; None where there are too few.

    Files that are not in the page cache come first: a storage server or a hypervisor keeps a cache that cannot be
    emptied from here, and what the machine has not read lately is least likely to be in it.
    """
    files = _list_files(data)
    random.shuffle(files)
    files = sorted(files[:_MAX_CHOSEN], key=lambda file: resident_fraction([file]) or 0.0)
    large = [file for file in files if file.bytes >= PIECE_BYTES]
    small = tuple(file for file in files if file.bytes < PIECE_BYTES)
    sliced = tuple(
        Piece(file.path, offset, PIECE_BYTES)
        for file in large
        for offset in range(0, file.bytes - PIECE_BYTES + 1, PIECE_BYTES)
    )[:_MAX_PIECES]
    front_to_back = whole = None
    if len(sliced) > 1:
        front_to_back = ChosenFiles(sliced, large[0].bytes, data)
    if len(small) >= _MIN_SMALL:
        whole = ChosenFiles(small, sum(file.bytes for file in small) // len(small), data)
    return front_to_back, whole


def _list_files(root: Path) -> list[Piece]:
    """Regular files below a folder (or the file itself), whole; stops after many."""
    if root.is_file():
        return [Piece(root, 0, root.stat().st_size)]
    found: list[Piece] = []
    for folder, _, names in os.walk(root):
        for path in (Path(folder, name) for name in names):
            with contextlib.suppress(OSError):
                size = path.stat().st_size
                if path.is_file() and os.access(path, os.R_OK) and size > 0:
                    found.append(Piece(path, 0, size))
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
            file.write(os.urandom(file_bytes))
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


def read_pieces(
    pieces: Sequence[Piece], seconds: float, readers: int = 1, direct: bool = False
) -> tuple[list[Mark], int]:
    """(marks, pieces read) of reading ``pieces`` in order until all are read or the time is over.

    Each of ``readers`` threads takes the next piece when it is done with one. The same plain reads through the page
    cache or past it (``direct``). Raises OSError, as where the file system knows no O_DIRECT (EINVAL).
    """
    lock, left, errors, done = threading.Lock(), iter(pieces), list[OSError](), list[Piece]()
    began = time.perf_counter()
    marks: list[Mark] = [(began, 0)]

    def note(got: int) -> bool:
        now = time.perf_counter()
        with lock:
            marks.append((now, marks[-1][1] + got))
        return now < began + seconds

    def work() -> None:
        buffer = mmap.mmap(-1, _BLOCK)  # page-aligned, as O_DIRECT wants it
        while not errors and time.perf_counter() < began + seconds:
            with lock:
                piece = next(left, None)
            if piece is None:
                return
            try:
                if _read_piece(piece, buffer, direct, note):
                    done.append(piece)
            except OSError as error:
                errors.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(readers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return marks, len(done)


def _read_piece(piece: Piece, buffer: mmap.mmap, direct: bool, note: Callable[[int], bool]) -> bool:
    """Whether it was read to its end: ``note`` is told of the bytes as they come, and says whether to go on."""
    flags = os.O_RDONLY | os.O_CLOEXEC | (os.O_DIRECT if direct else 0)
    descriptor = os.open(piece.path, flags)
    try:
        at, end, goes_on = piece.offset, piece.offset + piece.bytes, True
        while at < end and goes_on:
            wanted = min(_BLOCK, end - at)
            if direct:
                wanted = -(-wanted // _ALIGNMENT) * _ALIGNMENT
            got = min(os.preadv(descriptor, [memoryview(buffer)[:wanted]], at), end - at)
            if got <= 0:
                break
            at += got
            goes_on = note(got)
        return at >= end
    finally:
        os.close(descriptor)


def _read(
    link: str,
    chosen: ChosenFiles,
    wanted: Sequence[Piece],
    seconds: float,
    *,
    cold: bool = True,
    direct: bool = False,
    readers: int = 1,
) -> tuple[DiskRead | Unmeasured, int]:
    """(the record, how many pieces were read) past the page cache (``direct``), through the emptied or the full one."""

    def give_reason(why: str, read: int = 0) -> tuple[Unmeasured, int]:
        return Unmeasured(link=link, why=why), read

    try:
        if cold:
            evict_pieces(wanted)
        else:  # a first unmeasured pass makes sure that all of it is cached
            seconds /= 2
            wanted = wanted[: read_pieces(wanted, seconds)[1]]
        cached = resident_fraction(wanted)
        if cold and not direct and cached is not None and cached > COLD_ENOUGH:
            kept = f"{cached:.0%} of the pages stay in the page cache when dropped"
            return give_reason(f"{kept}, as on a file system kept in memory", len(wanted))
        marks, read = read_pieces(wanted, seconds, readers, direct)
    except OSError as error:
        what = f"{error.strerror or error}"
        if direct:
            return give_reason(f"{chosen.where} cannot be read past the page cache ({what})")
        return give_reason(f"a file could not be read: {what}")
    pattern = link.split()[1]
    by_piece = wanted[0].bytes if cold and pattern == "sequential" else None
    timing = split_run(marks, cold, by_piece)
    if timing is None:
        return give_reason("too little was read in time; give a larger --budget", read)
    record = DiskRead(
        pattern=pattern,
        cold=cold,
        direct=direct,
        reader="stash",
        path=str(chosen.where),
        file_bytes=chosen.file_bytes,
        resident=cached,
        readers=readers,
        timings=(timing,),
    )
    return record, read


def split_run(marks: Sequence[Mark], cold: bool, piece_bytes: int | None = None) -> Timing | None:
    """The run as repetitions; None if too little was read.

    Of whole pieces, where so many bytes make one: what is read ahead is then read for the piece that it counts for.
    Without enough of them all repetitions together still end with the last whole piece. From a disk, each is long
    enough to hold what limits and readahead let pass in bursts.
    """
    if piece_bytes is not None:
        whole = marks[-1][1] // piece_bytes
        each = max(1, whole // _PARTS)
        parts = whole // each
        end = parts * each * piece_bytes or marks[-1][1]
        marks = [mark for mark in marks if mark[1] <= end]
        if parts >= _MIN_PARTS:
            return equal_parts(marks, parts)
    if not cold:
        return equal_parts(marks, _PARTS)
    seconds, size = marks[-1][0] - marks[0][0], marks[-1][1] - marks[0][1]
    fits = min(int(seconds / _BURST), size // _AHEAD)
    return equal_parts(marks, max(_MIN_PARTS, min(_PARTS, fits)))
