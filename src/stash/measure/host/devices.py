"""Disks, network interfaces and PCI devices as sysfs lists them."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from stash.core.records.host import Disk, Nic
from stash.measure.linux.procfs import Mount, entries, holds, mounts, number, target, text
from stash.measure.linux.procfs import numa_node as node_of

# Disks -----------------------------------------------------------------------------------------------------
# The file system under a path and the block device under that: through partitions, mappers and software RAID.
#
# Reads the mount table, sysfs and statvfs; measures nothing. A disk behind a network or inside a container's
# overlay has no block device that can be seen, and none is guessed.

Statvfs = Callable[[str], os.statvfs_result]


def disk(root: Path, path: str, statvfs: Statvfs = os.statvfs) -> Disk:
    """What holds ``path``, an absolute path; every fact that cannot be read is ``None``."""
    mount = _mount(root, path)
    if mount is None:
        return Disk(path=path)
    wholes = _wholes(root, mount)
    bottom = [folder for folder in wholes if not entries(folder / "slaves")]
    size, free = _sizes(path, statvfs)
    return Disk(
        path=path,
        filesystem=mount.kind or None,
        device=_device(mount, wholes, bottom),
        model=_model(bottom),
        rotational=_rotational(bottom),
        size_bytes=size,
        free_bytes=free,
    )


def summary(root: Path, path: str) -> str | None:
    """``ext4 on /dev/nvme0n1p1`` for the mount that holds ``path``."""
    mount = _mount(root, path)
    return f"{mount.kind} on {mount.source}" if mount else None


def device_numbers(root: Path, path: str) -> list[str]:
    """``major:minor`` of every block device under ``path`` that a control group may limit."""
    mount = _mount(root, path)
    found = [text(folder / "dev") for folder in _wholes(root, mount)] if mount else []
    return [device for device in found if device is not None]


def _mount(root: Path, path: str) -> Mount | None:
    holding = [mount for mount in mounts(root) if holds(mount.point, path)]
    return sorted(holding, key=lambda mount: len(mount.point))[-1] if holding else None  # of equals, the newest


def _wholes(root: Path, mount: Mount) -> list[Path]:
    """Folders in sysfs of the whole device a mount is on and of those below it; empty if there are none."""
    named = root / "sys/class/block" / Path(mount.source).name  # btrfs numbers its mounts by itself
    start = target(root / "sys/dev/block" / mount.device) or (
        target(named) if mount.source.startswith("/dev/") else None
    )
    return list(dict.fromkeys(_layers(start))) if start else []


def _layers(folder: Path) -> list[Path]:
    whole = folder.parent if (folder / "partition").exists() else folder
    below = [target(slave) for slave in entries(whole / "slaves")]
    return [whole, *(layer for slave in below if slave for layer in _layers(slave))]


def _device(mount: Mount, wholes: list[Path], bottom: list[Path]) -> str | None:
    if wholes:
        return f"/dev/{(bottom[0] if len(bottom) == 1 else wholes[0]).name}"
    # without sysfs the mounted partition, for a network file system its server; "overlay" alone says nothing
    return mount.source if "/" in mount.source or ":" in mount.source else None


def _model(bottom: list[Path]) -> str | None:
    models = Counter(model for folder in bottom if (model := text(folder / "device/model")))
    return " + ".join(f"{count} x {model}" if count > 1 else model for model, count in models.items()) or None


def _rotational(bottom: list[Path]) -> bool | None:
    answers = {_spins(folder) for folder in bottom}
    return None if not answers or None in answers else True in answers


def _spins(folder: Path) -> bool | None:
    answer = number(folder / "queue/rotational")
    if answer and folder.name.startswith("vd"):
        return None  # virtio's disks claim to spin whatever lies behind them
    return None if answer is None else bool(answer)


def _sizes(path: str, statvfs: Statvfs) -> tuple[int | None, int | None]:
    try:
        found = statvfs(path)
    except OSError:
        return None, None
    return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail


# Nics ------------------------------------------------------------------------------------------------------
# Network interfaces as sysfs lists them: claimed speed, driver, packet size, NUMA node, RDMA device.
#
# What a link claims is not what it carries, and virtual ones often claim nothing: ``stash probe`` measures. Opens
# no socket and knows no addresses.

_LOOPBACK = 772
"""ARPHRD_LOOPBACK in linux/if_arp.h."""
_UNKNOWN_SPEED = 2**32 - 1
"""How some kernels print the -1 of a link without a speed."""


def nics(root: Path) -> tuple[Nic, ...]:
    """Every interface but loopback, then RDMA devices without one (such as EFA), each under its own name."""
    rdma = _rdma(root)
    found = []
    for folder in entries(root / "sys/class/net"):
        if not folder.is_dir() or number(folder / "type") == _LOOPBACK or folder.name == "lo":
            continue
        partner = rdma.pop(folder.name, None)
        found.append(
            Nic(
                name=folder.name,
                bytes_per_second=_speed(folder) or (_rate(partner) if partner else None),
                driver=_driver(folder),
                mtu=number(folder / "mtu"),
                numa_node=_node(folder),
                rdma=partner.name if partner else None,
            )
        )
    alone = dict.fromkeys(f for name, f in rdma.items() if not (root / "sys/class/net" / name).exists())
    found += [
        Nic(name=f.name, bytes_per_second=_rate(f), driver=_driver(f), numa_node=_node(f), rdma=f.name) for f in alone
    ]
    return tuple(found)


def _rdma(root: Path) -> dict[str, Path]:
    """Interface to the RDMA device on the same hardware; a device without an interface has its own name."""
    found: dict[str, Path] = {}
    for device in entries(root / "sys/class/infiniband"):
        names = [folder.name for folder in entries(device / "device/net")] or [device.name]
        found |= dict.fromkeys(names, device)
    return found


def _speed(folder: Path) -> float | None:
    """The link's claim, which sysfs gives in Mbit/s; reading it is an error while the link is down."""
    megabits = number(folder / "speed")
    return megabits * 1e6 / 8 if megabits is not None and 0 < megabits < _UNKNOWN_SPEED else None


def _rate(device: Path) -> float | None:
    """Of an RDMA device's first port: ``100 Gb/sec (4X EDR)``."""
    ports = entries(device / "ports")
    match = re.match(r"([0-9.]+) Gb/sec", text(ports[0] / "rate") or "") if ports else None
    return float(match[1]) * 1e9 / 8 or None if match else None


def _driver(folder: Path) -> str | None:
    driver = target(folder / "device/driver")
    return driver.name if driver else None


def _node(folder: Path) -> int | None:
    device = target(folder / "device")
    if device is None:
        return None
    node = node_of(device)
    return node if node is not None else node_of(device.parent)  # virtio's devices sit on a PCI device


# Pci -------------------------------------------------------------------------------------------------------
# PCI devices as sysfs lists them: addresses, the link's generation and width, NUMA node.
#
# Serves where a driver does not answer, and needs none. Knows nothing of what the devices do.

_GENERATIONS = {"2.5": 1, "5": 2, "8": 3, "16": 4, "32": 5, "64": 6}
"""GT/s per lane to PCI Express generation."""
_NVIDIA = "0x10de"
_GPU_CLASSES = ("0x0300", "0x0302")
"""VGA and 3D controllers."""
_ADDRESS = re.compile(r"([0-9a-f]+):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE)


def address(text: str) -> str | None:
    """An address as sysfs writes it: NVML's ``00000000:3B:00.0`` is ``0000:3b:00.0``; ``None`` if it is none."""
    match = _ADDRESS.fullmatch(text.strip())
    return f"{int(match[1], 16):04x}:{match[2]}:{match[3]}.{match[4]}".lower() if match else None


def numa_node(root: Path, bus: str) -> int | None:
    return node_of(_pci_device(root, bus))


def link(root: Path, bus: str) -> str | None:
    """The link in use now, ``gen3 x16``."""
    return written(*_link(_pci_device(root, bus), "current"))


def most(root: Path, bus: str) -> str | None:
    """The most this device can use in this slot: the lesser of its own and of the port it is plugged into."""
    device = target(_pci_device(root, bus))
    if device is None:
        return None
    ends = [_link(device, "max"), _link(device.parent, "max")]
    generations = [generation for generation, _ in ends if generation is not None]
    widths = [width for _, width in ends if width is not None]
    return written(min(generations, default=None), min(widths, default=None))


def written(generation: int | None, width: int | None) -> str | None:
    """``gen4 x16``; ``None`` unless both are known."""
    return f"gen{generation} x{width}" if generation and width else None


def nvidia_gpus(root: Path) -> dict[str, str]:
    """Address to ``vendor:device`` of each of NVIDIA's GPUs, in the order in which the driver numbers them."""
    found = {}
    for folder in entries(root / "sys/bus/pci/devices"):
        if text(folder / "vendor") == _NVIDIA and (text(folder / "class") or "").startswith(_GPU_CLASSES):
            found[folder.name] = f"10de:{(text(folder / 'device') or '0x????').removeprefix('0x')}"
    return dict(sorted(found.items()))


def _pci_device(root: Path, bus: str) -> Path:
    return root / "sys/bus/pci/devices" / bus


def _link(device: Path, which: str) -> tuple[int | None, int | None]:
    # "8.0 GT/s PCIe", "16 GT/s" on older kernels, or "Unknown"
    speed = (text(device / f"{which}_link_speed") or "").split(" ")[0].removesuffix(".0")
    width = number(device / f"{which}_link_width")
    return _GENERATIONS.get(speed), width if width and width < 255 else None  # 255 is unknown
