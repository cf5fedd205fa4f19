"""Files that this process keeps open or mapped, and letting go of the pages behind its mappings.

A page that any process maps stays in the page cache, whoever asks for its eviction. Letting go empties this process's
page tables only: the next access finds the page again, in the cache or on disk. What a private mapping holds that its
file does not is never touched.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

_MADV_DONTNEED = 4
_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


@dataclass(frozen=True)
class Region:
    """A part of this process's memory that maps a file."""

    start: int
    length: int
    private: bool
    """It may hold pages that were changed and are in no file, also if it can no longer be written to."""


@dataclass(frozen=True)
class HeldFile:
    """A file that this process keeps open for reading, or mapped, or both."""

    path: str
    regions: tuple[Region, ...] = ()


def held_files() -> list[HeldFile]:
    """Files this process keeps open for reading or has mapped, programs left out; some may be deleted or no files."""
    regions: dict[str, list[Region]] = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{name}")
            with open(f"/proc/self/fdinfo/{name}") as info:
                flags = next(int(line.split()[1], 8) for line in info if line.startswith("flags:"))
        except OSError:
            continue  # the listing's own descriptor is gone by now
        if (
            path.startswith("/") and flags & os.O_ACCMODE != os.O_WRONLY
        ):  # one only written to (a log) has no data
            regions[path] = []
    with open("/proc/self/maps") as maps:
        for line in maps:
            parts = line.rstrip("\n").split(maxsplit=5)
            if len(parts) == 6 and parts[5].startswith("/") and "x" not in parts[1]:
                start, end = (int(part, 16) for part in parts[0].split("-"))
                regions.setdefault(parts[5], []).append(
                    Region(start, end - start, parts[1].endswith("p"))
                )
    return [HeldFile(path, tuple(found)) for path, found in sorted(regions.items())]


def let_go(regions: list[Region]) -> None:
    """Empty this process's page tables of ``regions``, but of none that holds pages of its own.

    Advice that the kernel refuses (locked pages) changes nothing, which the count of resident pages then shows.
    """
    changed: set[int] = set()  # where mappings start that hold pages which no file has
    if any(region.private for region in regions):
        start = 0
        with open("/proc/self/smaps") as mappings:
            for line in mappings:
                name, _, value = line.partition(":")
                if name == "Anonymous" and int(value.split()[0]) > 0:
                    changed.add(start)
                elif "-" in name.partition(" ")[0]:
                    start = int(name.partition("-")[0], 16)
    for region in regions:
        if not (region.private and region.start in changed):
            _libc.madvise(region.start, region.length, _MADV_DONTNEED)
