"""Reading from the disk under the data: front to back and whole files in random order, cold, direct and warm.

Cold means dropped from this machine's page cache, with the kernel's own count as proof. Knows which
pattern reads what; ``disk_pieces`` knows where files come from and how they are read.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stash.core.records.host import DiskRead, Timing, Unmeasured
from stash.measure.probe import disk_pieces
from stash.measure.probe.disk_pieces import ChosenFiles, Piece
from stash.measure.probe.exchanges import Mark, equal_parts

COLD_ENOUGH = 0.05
"""Fraction of pages that may stay in the cache in what is called a cold read."""
MANY = 8
_PARTS, _MIN_PARTS = 8, 3
_BURST = 0.15
"""Seconds: the kernel's own limits (blkio, io.max) hand out their bytes every tenth of a second."""
_AHEAD = 8 << 20
"""Bytes: readahead brings a few MB at once, which then seem to take no time."""
_WRITING = 0.25
_SEQUENTIAL_FILES = 12
_RANDOM_BYTES = 256 << 20


@dataclass(frozen=True)
class Folders:
    """Where to read: in the data set if there is one, in a scratch folder as well or instead."""

    data: Path | None
    scratch: Path
    """On the disk that is to be measured; need not exist."""
    file_bytes: int
    """Size of the random reads' files where none are there to be read."""


Reads = list[DiskRead | Unmeasured]


def measure(folders: Folders, seconds: float) -> Reads:
    """Every pattern in turn, within about ``seconds``."""
    found: Reads = []
    share = seconds / 2
    each = share * (1 - _WRITING) / 3
    for pattern in ("sequential", "random"):
        try:
            chosen = _choose_files(folders, pattern, share * _WRITING)
        except OSError as error:
            where = folders.scratch.parent
            why = f"no file can be written in {where} ({error.strerror or error}); --data reads others"
            found.append(Unmeasured(link=f"reads {pattern}", why=why))
            continue
        if isinstance(chosen, Unmeasured):
            found.append(chosen)
        elif (
            pattern == "sequential"
        ):  # past the cache, through the empty cache, through the full one
            first, second = chosen.halves()
            found.append(_read_cold("reads sequential direct", chosen, first, each, direct=True)[0])
            found.append(_read_cold("reads sequential cold", chosen, second, each)[0])
            found.append(_read_warm(chosen, "sequential", second, each))
        else:  # one after the other and eight at a time from disk, and again from memory
            first, second = chosen.halves()
            one, read = _read_cold("reads random cold", chosen, first, each)
            many, _ = _read_cold(
                f"reads random cold, {MANY} at once", chosen, second, each, readers=MANY
            )
            found += [one, many, _read_warm(chosen, "random", first[:read], each)]
        shutil.rmtree(folders.scratch, ignore_errors=True)  # the next pattern may need the space
    return found


def _choose_files(folders: Folders, pattern: str, seconds: float) -> ChosenFiles | Unmeasured:
    """The data set's files for a pattern, else new ones; raises OSError where those cannot be written."""
    link = f"reads {pattern}"
    if folders.data is not None:
        large, small = disk_pieces.choose_from_data(folders.data)
        own = large if pattern == "sequential" else small
        if own is not None:
            return own
        what = (
            "too few files of 16 MB or more"
            if pattern == "sequential"
            else "too few files below 16 MB"
        )
        data_disk = folders.data.stat().st_dev
        if folders.scratch.parent.stat().st_dev != data_disk:
            elsewhere = "the current folder is on another disk; run it from the data's disk"
            return Unmeasured(link=link, why=f"{folders.data} holds {what}, and {elsewhere}")
    size, count = disk_pieces.PIECE_BYTES, _SEQUENTIAL_FILES
    if pattern == "random":
        size, count = folders.file_bytes, max(16, _RANDOM_BYTES // folders.file_bytes)
    return disk_pieces.write_files(folders.scratch, size, count, seconds) or Unmeasured(
        link=link,
        why=f"less than {size * 2 / 0.1 / 1e6:.0f} MB are free at {folders.scratch.parent}; free some space",
    )


def _read_cold(
    link: str,
    chosen: ChosenFiles,
    wanted: Sequence[Piece],
    seconds: float,
    *,
    direct: bool = False,
    readers: int = 1,
) -> tuple[DiskRead | Unmeasured, int]:
    """(the record, how many pieces were read) past the page cache (``direct``) or through the emptied one."""
    disk_pieces.evict_pieces(wanted)
    cached = disk_pieces.resident_fraction(wanted)
    if not direct and cached is not None and cached > COLD_ENOUGH:
        why = f"{cached:.0%} of the pages stay in the page cache when dropped, as on a file system kept in memory"
        return Unmeasured(link=link, why=why), len(wanted)
    try:
        marks, read = disk_pieces.read_pieces(wanted, seconds, readers, direct)
    except OSError as error:
        why = f"a file could not be read: {error.strerror or error}"
        if direct:
            why = f"{chosen.where} cannot be read past the page cache ({error.strerror or error})"
        return Unmeasured(link=link, why=why), 0
    timing = (
        _split_by_piece(marks, wanted[0].bytes)
        if "sequential" in link
        else _split_timing(marks, cold=True)
    )
    return _make_record(
        link, chosen, timing, resident=cached, cold=True, direct=direct, readers=readers
    ), read


def _read_warm(
    chosen: ChosenFiles, pattern: str, wanted: Sequence[Piece], seconds: float
) -> DiskRead | Unmeasured:
    """What was just read, again; a first unmeasured pass makes sure that all of it is cached."""
    link = f"reads {pattern} warm"
    try:
        _, cached_pieces = disk_pieces.read_pieces(wanted, seconds / 2)
        wanted = wanted[:cached_pieces]
        cached = disk_pieces.resident_fraction(wanted)
        marks, _ = disk_pieces.read_pieces(wanted, seconds / 2)
    except OSError as error:
        return Unmeasured(link=link, why=f"a file could not be read: {error.strerror or error}")
    return _make_record(link, chosen, _split_timing(marks, cold=False), resident=cached, cold=False)


def _split_by_piece(marks: Sequence[Mark], size: int) -> Timing | None:
    """The run as repetitions of whole pieces: what is read ahead is then read for the piece that it counts for.

    Without enough of them, all repetitions together still end with the last whole piece.
    """
    whole = marks[-1][1] // size
    each = max(1, whole // _PARTS)
    end = whole // each * each * size or marks[-1][1]
    marks = [mark for mark in marks if mark[1] <= end]
    return (
        equal_parts(marks, whole // each)
        if whole // each >= _MIN_PARTS
        else _split_timing(marks, cold=True)
    )


def _split_timing(marks: Sequence[Mark], cold: bool) -> Timing | None:
    """The run as repetitions: from a disk, each long enough to hold what limits and readahead let pass in bursts."""
    if len(marks) < 2:
        return None
    fits = min(int((marks[-1][0] - marks[0][0]) / _BURST), (marks[-1][1] - marks[0][1]) // _AHEAD)
    return equal_parts(marks, max(_MIN_PARTS, min(_PARTS, fits)) if cold else _PARTS)


def _make_record(
    link: str,
    chosen: ChosenFiles,
    timing: Timing | None,
    *,
    resident: float | None,
    cold: bool,
    direct: bool = False,
    readers: int = 1,
) -> DiskRead | Unmeasured:
    if timing is None:
        return Unmeasured(link=link, why="too little was read in time; give a larger --budget")
    return DiskRead(
        pattern=link.split()[1],
        cold=cold,
        direct=direct,
        reader="stash",
        path=str(chosen.where),
        file_bytes=chosen.file_bytes,
        resident=resident,
        readers=readers,
        timings=(timing,),
    )
