"""Small files of /proc and /sys under any root, where a missing one is an unknown fact and never an error; mounts.

Knows how to read text, integers, folders and the mount table, and which file systems keep a cache of their own.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple


def read_text(path: Path) -> str | None:
    """The stripped content of a file, ``None`` if it cannot be read or is empty."""
    try:
        return path.read_text(errors="replace").strip() or None
    except (OSError, ValueError):
        return None


def read_number(path: Path) -> int | None:
    """The integer in a file, ``None`` if there is none that the kernel could have meant."""
    content = read_text(path)
    try:
        found = None if content is None else int(content)
    except ValueError:
        return None
    return found if found is not None and abs(found) < 1 << 63 else None


def read_fields(path: Path) -> dict[str, str]:
    """The lines ``name: value`` of a file; of those with one name the last."""
    lines = (line.partition(":") for line in (read_text(path) or "").splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def parse_ranges(listed: str | None) -> set[int] | None:
    """The numbers in the kernel's list format: ``0-3,8`` is {0, 1, 2, 3, 8}; ``None`` if it is not one."""
    if listed is None:
        return None
    found: set[int] = set()
    for part in listed.split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or not (last or first).isdigit():
            return None
        found |= set(range(int(first), int(last or first) + 1))
    return found


def list_entries(folder: Path) -> list[Path]:
    """What a folder holds, in natural order (``mlx5_2`` before ``mlx5_10``); nothing if it cannot be listed."""

    def natural(path: Path) -> list[tuple[int, int, str]]:
        parts = filter(None, re.split(r"(\d+)", path.name))
        return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]

    try:
        return sorted(folder.iterdir(), key=natural)
    except OSError:
        return []


def resolve_link(link: Path) -> Path | None:
    """What a symbolic link leads to, ``None`` if it leads nowhere."""
    try:
        return link.resolve(strict=True)
    except (OSError, RuntimeError):
        return None


def numa_node(device: Path) -> int | None:
    """The NUMA node of a device's folder in sysfs; -1 there means that the firmware names none."""
    node = read_number(device / "numa_node")
    return node if node is not None and node >= 0 else None


_OCTAL = re.compile(r"\\([0-7]{3})")


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


def read_mounts(root: Path) -> list[Mount]:
    """The mount table of this process, oldest mount first."""
    found = []
    for line in (read_text(root / "proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, source, options, *_) = before.split(" "), (*after.split(" "), "", "", "")
        if len(fields) >= 6:
            # the kernel writes blanks in paths as octal numbers (proc(5))
            names = (
                _OCTAL.sub(lambda match: chr(int(match[1], 8)), name)
                for name in (*fields[3:5], source)
            )
            place, point, origin = names
            found.append(
                Mount(fields[2], place, point, kind, origin, frozenset(options.split(",")))
            )
    return found


def mount_of(table: list[Mount], path: str) -> Mount | None:
    """The mount that holds an absolute path: the deepest, of equals the newest."""
    holding = [mount for mount in table if is_below(mount.point, path)]
    return sorted(holding, key=lambda mount: len(mount.point))[-1] if holding else None


def is_below(point: str, path: str) -> bool:
    """Whether ``path`` is ``point`` or lies under it."""
    return path == point or path.startswith(point.rstrip("/") + "/")


LAYERED = frozenset({"overlay", "aufs"})
"""Files are those of another file system below, and so are their pages."""
_CACHES_ITSELF = frozenset(
    {
        "zfs",
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "9p",
        "virtiofs",
        "ceph",
        "lustre",
        "glusterfs",
        "beegfs",
        "gpfs",
        "afs",
        "fuse",
        "fuseblk",
        "tmpfs",
        "ramfs",
        "rootfs",
        "devtmpfs",
    }
)
_ROOT = Path("/")
_known: dict[int, str | None] = {}


def kind_of(path: str, device: int, root: Path = _ROOT) -> str | None:
    """The type of the file system that holds ``path``, whose ``st_dev`` is ``device``; None if no mount does.

    Some (btrfs) number their files' devices otherwise than their mounts, and are found by where they are mounted.
    """
    if device not in _known:
        table, number = read_mounts(root), f"{os.major(device)}:{os.minor(device)}"
        numbered = [mount for mount in table if mount.device == number]
        found = numbered[-1] if numbered else mount_of(table, os.path.realpath(path))
        _known[device] = found.kind if found else None
    return _known[device]


def caches_itself(kind: str | None) -> bool:
    """Whether reads may be served by a cache that Stash cannot empty, so that what a cold read takes is unknown.

    Some file systems keep one in addition to the page cache (ZFS), read through another process or machine that
    has one (FUSE, NFS), or lie in memory altogether (tmpfs).
    """
    return kind is not None and (kind in _CACHES_ITSELF or kind.startswith("fuse."))
