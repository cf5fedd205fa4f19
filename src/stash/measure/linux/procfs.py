"""Small files of /proc and /sys, where a missing one is an unknown fact; file systems; this process's memory."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

# Files -----------------------------------------------------------------------------------------------------
# Small files of /proc and /sys, where a missing or unreadable one is an unknown fact and never an error.
#
# Knows how to read text, integers, folders and the mount table under any root; knows nothing of their meaning.


def text(path: Path) -> str | None:
    """The stripped content of a file, ``None`` if it cannot be read or is empty."""
    try:
        return path.read_text(errors="replace").strip() or None
    except (OSError, ValueError):
        return None


def number(path: Path) -> int | None:
    """The integer in a file, ``None`` if there is none that the kernel could have meant."""
    content = text(path)
    try:
        found = None if content is None else int(content)
    except ValueError:
        return None
    return found if found is not None and abs(found) < 1 << 63 else None


def entries(folder: Path) -> list[Path]:
    """What a folder holds, in natural order (``mlx5_2`` before ``mlx5_10``); nothing if it cannot be listed."""
    try:
        return sorted(folder.iterdir(), key=lambda path: _natural(path.name))
    except OSError:
        return []


def target(link: Path) -> Path | None:
    """What a symbolic link leads to, ``None`` if it leads nowhere."""
    try:
        return link.resolve(strict=True)
    except (OSError, RuntimeError):
        return None


def numa_node(device: Path) -> int | None:
    """The NUMA node of a device's folder in sysfs; -1 there means that the firmware names none."""
    node = number(device / "numa_node")
    return node if node is not None and node >= 0 else None


class Mount(NamedTuple):
    """One line of the mount table."""

    device: str
    """``major:minor``; major 0 for file systems without a block device."""
    root: str
    """Which part of the file system is mounted."""
    point: str
    kind: str
    source: str
    options: frozenset[str]
    """Of the file system itself; for control groups, the controllers."""


def mounts(root: Path) -> list[Mount]:
    """The mount table of this process, oldest mount first."""
    found = []
    for line in (text(root / "proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, source, options, *_) = before.split(" "), (*after.split(" "), "", "", "")
        if len(fields) >= 6:
            found.append(
                Mount(
                    fields[2],
                    _plain(fields[3]),
                    _plain(fields[4]),
                    kind,
                    _plain(source),
                    frozenset(options.split(",")),
                )
            )
    return found


def holds(point: str, path: str) -> bool:
    """Whether ``path`` is ``point`` or lies under it."""
    return path == point or path.startswith(point.rstrip("/") + "/")


def _plain(field: str) -> str:
    """The kernel writes blanks in paths as octal numbers (proc(5))."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def _natural(name: str) -> list[tuple[int, int, str]]:
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


# Filesystems -----------------------------------------------------------------------------------------------
# Which file system holds a file, and whether emptying the page cache makes reading from it cold.
#
# Some keep a cache of their own besides the page cache (ZFS), read through another process or machine that has one
# (FUSE, NFS), or lie in memory altogether (tmpfs): there it is unknown what a cold read takes.

LAYERED = frozenset({"overlay", "aufs"})
"""Files are those of another file system below, and so are their pages."""
_CACHES_ITSELF = frozenset({
    "zfs", "nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph", "lustre", "glusterfs", "beegfs", "gpfs", "afs",
    "fuse", "fuseblk", "tmpfs", "ramfs", "rootfs", "devtmpfs",
})  # fmt: skip
_ROOT = Path("/")
_known: dict[int, str | None] = {}


def kind_of(path: str, device: int, root: Path = _ROOT) -> str | None:
    """The type of the file system that holds ``path``, whose ``st_dev`` is ``device``; None if no mount does.

    Some (btrfs) number their files' devices otherwise than their mounts, and are found by where they are mounted.
    """
    if device not in _known:
        _known[device] = _kind(path, device, root)
    return _known[device]


def _kind(path: str, device: int, root: Path) -> str | None:
    table, number = mounts(root), f"{os.major(device)}:{os.minor(device)}"
    numbered = [mount for mount in table if mount.device == number]
    real = os.path.realpath(path)
    holding = [mount for mount in table if holds(mount.point, real)]
    found = numbered or sorted(holding, key=lambda mount: len(mount.point))
    return found[-1].kind if found else None


def caches_itself(kind: str | None) -> bool:
    """Whether reads may be served by a cache that Stash cannot empty."""
    return kind is not None and (kind in _CACHES_ITSELF or kind.startswith("fuse."))


# Memory ----------------------------------------------------------------------------------------------------
# What the kernel tells of this process's own memory.


def peak_resident_bytes() -> int | None:
    """The most that was resident at once since the process began its program (VmHWM); None where unknown."""
    try:
        with open("/proc/self/status") as file:
            line = next(line for line in file if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError, StopIteration):
        return None
