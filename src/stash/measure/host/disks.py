"""The file system under a path and the block device under that: through partitions, mappers and software RAID.

Reads the mount table, sysfs and statvfs; measures nothing. A disk behind a network or inside a container's
overlay has no block device that can be seen, and none is guessed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from stash.core.records.host import Disk
from stash.measure.linux.procfs import Mount, list_entries, read_number, read_text, resolve_link

Statvfs = Callable[[str], os.statvfs_result]


def describe_disk(root: Path, path: str, mount: Mount | None, statvfs: Statvfs) -> Disk:
    """What holds ``path``, an absolute path on ``mount``; every fact that cannot be read is ``None``."""
    if mount is None:
        return Disk(path=path)
    wholes = _list_whole_devices(root, mount)
    bottom = [folder for folder in wholes if not list_entries(folder / "slaves")]
    # without sysfs the mounted partition, for a network file system its server; "overlay" alone says nothing
    device = mount.source if "/" in mount.source or ":" in mount.source else None
    if wholes:
        device = f"/dev/{(bottom[0] if len(bottom) == 1 else wholes[0]).name}"
    models = Counter(model for folder in bottom if (model := read_text(folder / "device/model")))
    # virtio's disks claim to spin whatever lies behind them
    turning = {
        (folder.name.startswith("vd"), read_number(folder / "queue/rotational"))
        for folder in bottom
    }
    unknown = not turning or any(flag is None or (flag and virtual) for virtual, flag in turning)
    try:
        sizes = statvfs(path)
    except OSError:
        sizes = None
    return Disk(
        path=path,
        filesystem=mount.kind or None,
        device=device,
        model=" + ".join(
            f"{count} x {model}" if count > 1 else model for model, count in models.items()
        )
        or None,
        rotational=None if unknown else any(flag for _, flag in turning),
        size_bytes=sizes.f_frsize * sizes.f_blocks if sizes else None,
        free_bytes=sizes.f_frsize * sizes.f_bavail if sizes else None,
    )


def device_numbers(root: Path, mount: Mount | None) -> list[str]:
    """``major:minor`` of every block device under a mount that a control group may limit."""
    found = (
        [read_text(folder / "dev") for folder in _list_whole_devices(root, mount)] if mount else []
    )
    return [device for device in found if device is not None]


def _list_whole_devices(root: Path, mount: Mount) -> list[Path]:
    """Folders in sysfs of the whole device a mount is on and of those below it; empty if there are none."""
    named = root / "sys/class/block" / Path(mount.source).name  # btrfs numbers its mounts by itself
    start = resolve_link(root / "sys/dev/block" / mount.device) or (
        resolve_link(named) if mount.source.startswith("/dev/") else None
    )
    return list(dict.fromkeys(_list_layers(start))) if start else []


def _list_layers(folder: Path) -> list[Path]:
    whole = folder.parent if (folder / "partition").exists() else folder
    below = [resolve_link(slave) for slave in list_entries(whole / "slaves")]
    return [whole, *(layer for slave in below if slave for layer in _list_layers(slave))]
