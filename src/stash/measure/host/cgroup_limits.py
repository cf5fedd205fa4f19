"""What control groups allow this process, version 1 and version 2: processor time, memory, reading from a disk.

A limit may be set on any group above one's own, so every group up to the top that is visible is read and the
tightest one counts. Sets no limits (the testbed does); knows nothing of CPU sets, which are the affinity's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from stash.core.records.host import Limits
from stash.measure.linux.control_groups import ControlGroups
from stash.measure.linux.procfs import read_text

_UNLIMITED_BYTES = 2**62
"""Version 1 writes "no limit" as the largest page-aligned integer; the page's size differs between machines."""


def read_limits(root: Path, devices: Iterable[str] = ()) -> Limits | None:
    """The limits of this process; ``devices`` are the ``major:minor`` that its data lie on.

    ``None`` if no control group can be seen, which is not the same as no limit.
    """
    numbers, groups = frozenset(devices), ControlGroups(root)
    cpu, memory, blkio, unified = map(groups.list_folders, ("cpu", "memory", "blkio", ""))
    if not (cpu or memory or blkio or unified):
        return None
    shares = [
        [_parse_count(read_text(folder / f"cpu.cfs_{name}_us")) for name in ("quota", "period")]
        for folder in cpu
    ]
    shares += [
        [_parse_count(word) for word in (read_text(folder / "cpu.max") or "").split()]
        for folder in unified
    ]
    sizes = [_parse_count(read_text(folder / "memory.limit_in_bytes")) for folder in memory]
    sizes = [size for size in sizes if size is not None and size < _UNLIMITED_BYTES]
    sizes += [_parse_count(read_text(folder / "memory.max")) for folder in unified]
    # lines of "254:0 52428800"
    rates = [
        _parse_count(row[1])
        for folder in blkio
        for row in _rows(folder / "blkio.throttle.read_bps_device", numbers)
        if len(row) == 2
    ]
    # lines of "254:0 rbps=52428800 wbps=max riops=max wiops=max"
    rates += [
        _parse_count(setting.removeprefix("rbps="))
        for folder in unified
        for row in _rows(folder / "io.max", numbers)
        for setting in row[1:]
        if setting.startswith("rbps=")
    ]
    quotas = [
        quota / period
        for quota, period in (share for share in shares if len(share) == 2)
        if quota and period
    ]
    return Limits(
        cpus=min(quotas, default=None),
        memory_bytes=min((size for size in sizes if size is not None), default=None),
        read_bytes_per_second=min(
            (float(rate) for rate in rates if rate is not None), default=None
        ),
    )


def _rows(file: Path, devices: frozenset[str]) -> Iterator[list[str]]:
    rows = (line.split() for line in (read_text(file) or "").splitlines())
    return (row for row in rows if row and row[0] in devices)


def _parse_count(content: str | None) -> int | None:
    """A number of units; ``max`` and ``-1`` are no limit, and so is what is not a number."""
    return int(content) if content is not None and content.isdigit() else None
