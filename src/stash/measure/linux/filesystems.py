"""Which file system holds a file, and whether emptying the page cache makes reading from it cold.

Some keep a cache of their own besides the page cache (ZFS), read through another process or machine that has one
(FUSE, NFS), or lie in memory altogether (tmpfs): there nobody can tell what a cold read takes.
"""

from __future__ import annotations

import os
from pathlib import Path

from stash.measure.linux.files import holds, mounts

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
