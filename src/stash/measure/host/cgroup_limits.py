"""What control groups allow this process, version 1 and version 2: processor time, memory, reading from a disk.

A limit may be set on any group above one's own, so every group up to the top that is visible is read and the
tightest one counts. Sets no limits (the testbed does); knows nothing of CPU sets, which are the affinity's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from stash.core.records.host import Limits
from stash.measure.linux.procfs import Mount, holds, mounts, text

_UNLIMITED_BYTES = 2**62
"""Version 1 writes "no limit" as the largest page-aligned integer; the page's size differs between machines."""


def limits(root: Path, devices: Iterable[str] = ()) -> Limits | None:
    """The limits of this process; ``devices`` are the ``major:minor`` that its data lie on.

    ``None`` if no control group can be seen, which is not the same as no limit.
    """
    table, numbers = mounts(root), frozenset(devices)
    groups: dict[str, str] = {}  # of this process, by controller; version 2 has the empty name
    for line in (text(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        groups |= dict.fromkeys(controllers.split(","), path)
    cpu, memory, blkio, unified = (_folders(root, table, groups, name) for name in ("cpu", "memory", "blkio", ""))
    if not (cpu or memory or blkio or unified):
        return None
    shares = [[_count(text(folder / f"cpu.cfs_{name}_us")) for name in ("quota", "period")] for folder in cpu]
    shares += [[_count(word) for word in (text(folder / "cpu.max") or "").split()] for folder in unified]
    sizes = [_count(text(folder / "memory.limit_in_bytes")) for folder in memory]
    sizes = [size for size in sizes if size is not None and size < _UNLIMITED_BYTES]
    sizes += [_count(text(folder / "memory.max")) for folder in unified]
    # lines of "254:0 52428800"
    rates = [
        _count(row[1])
        for folder in blkio
        for row in _rows(folder / "blkio.throttle.read_bps_device", numbers)
        if len(row) == 2
    ]
    # lines of "254:0 rbps=52428800 wbps=max riops=max wiops=max"
    rates += [
        _count(setting.removeprefix("rbps="))
        for folder in unified
        for row in _rows(folder / "io.max", numbers)
        for setting in row[1:]
        if setting.startswith("rbps=")
    ]
    quotas = [quota / period for quota, period in (share for share in shares if len(share) == 2) if quota and period]
    return Limits(
        cpus=min(quotas, default=None),
        memory_bytes=min((size for size in sizes if size is not None), default=None),
        read_bytes_per_second=min((float(rate) for rate in rates if rate is not None), default=None),
    )


def _folders(root: Path, table: list[Mount], groups: dict[str, str], controller: str) -> list[Path]:
    """The folders of this process's group and of all above it, as far up as they are mounted."""
    kind = "cgroup" if controller else "cgroup2"
    mount = next((m for m in table if m.kind == kind and (not controller or controller in m.options)), None)
    if mount is None or controller not in groups:
        return []
    path = groups[controller]
    # a container may see the path of a group that lies outside what is mounted; the mount is then its groups group
    inside = path[len(mount.root.rstrip("/")) :].strip("/") if holds(mount.root, path) else ""
    top = root / mount.point.strip("/")
    below = Path(inside).parts if ".." not in Path(inside).parts else ()
    return [top.joinpath(*below[:depth]) for depth in range(len(below), -1, -1)]


def _rows(file: Path, devices: frozenset[str]) -> Iterator[list[str]]:
    rows = (line.split() for line in (text(file) or "").splitlines())
    return (row for row in rows if row and row[0] in devices)


def _count(content: str | None) -> int | None:
    """A number of units; ``max`` and ``-1`` are no limit, and so is what is not a number."""
    return int(content) if content is not None and content.isdigit() else None
