"""Network interfaces as sysfs lists them: claimed speed, driver, packet size, NUMA node, RDMA device.

What a link claims is not what it carries, and virtual ones often claim nothing: ``stash probe`` measures.
Opens no socket and knows no addresses.
"""

from __future__ import annotations

import re
from pathlib import Path

from stash.base.records import Nic
from stash.measure.linux.files import entries, numa_node, number, target, text

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
    node = numa_node(device)
    return node if node is not None else numa_node(device.parent)  # virtio's devices sit on a PCI device
