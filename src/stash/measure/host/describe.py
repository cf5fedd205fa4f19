"""What a machine is, without measuring it: processor, memory, network interfaces, and what the modules here add.

Reads /proc and /sys under a given root; what cannot be read stays ``None``. Opens no socket and knows no addresses.
"""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stash.core.records.host import Host, Nic
from stash.measure.host import cloud, disks
from stash.measure.host.cgroup_limits import read_limits
from stash.measure.host.cloud import Fetch, fetch_over_http
from stash.measure.host.gpus import GpuInventory, describe_gpus, open_nvml
from stash.measure.linux.procfs import (
    list_entries,
    mount_of,
    numa_node,
    parse_ranges,
    read_fields,
    read_mounts,
    read_number,
    read_text,
    resolve_link,
)


def cpu_model(root: Path) -> str | None:
    """The CPU's name as the kernel has it; ARM kernels give numbers only, ``ARM implementer 0x41 part 0xd40``."""
    facts = read_fields(root / "proc/cpuinfo")
    if "model name" in facts:
        return facts["model name"] or None
    if "CPU implementer" in facts and "CPU part" in facts:
        return f"ARM implementer {facts['CPU implementer']} part {facts['CPU part']}"
    return None


_VECTORS = {
    "amx": "amx_tile",
    "avx512": "avx512f",
    "avx2": "avx2",
    "avx": "avx",
    "sve": "sve",
    "neon": "asimd",
}
"""The widest first: what the kernel calls them."""


def vector_level(root: Path = Path("/")) -> str | None:
    """The widest vector instructions that all cores have, as the kernel lists them; ``None`` where it lists none."""
    lines = (line.partition(":") for line in (read_text(root / "proc/cpuinfo") or "").splitlines())
    flags = {
        word
        for key, _, value in lines
        if key.strip() in ("flags", "Features")
        for word in value.split()
    }
    return next((name for name, flag in _VECTORS.items() if flag in flags), None)


def huge_pages(root: Path) -> str | None:
    """Which memory gets huge pages without being asked: ``always``, ``madvise`` or ``never``."""
    chosen = re.search(
        r"\[(\w+)\]", read_text(root / "sys/kernel/mm/transparent_hugepage/enabled") or ""
    )
    return None if chosen is None else chosen[1]


def allowed_nodes(root: Path) -> tuple[int, ...] | None:
    """NUMA nodes of the cores that this process may use."""
    allowed = allowed_cores(root)
    if allowed is None:
        return None
    found = []
    for node in list_entries(root / "sys/devices/system/node"):
        own = (
            parse_ranges(read_text(node / "cpulist"))
            if node.name.removeprefix("node").isdecimal()
            else None
        )
        if own and own & allowed:
            found.append(int(node.name.removeprefix("node")))
    return tuple(sorted(found)) or None


def count_cores(root: Path) -> int | None:
    """Cores this process may run on: its affinity, which includes a container's set of CPUs."""
    allowed = allowed_cores(root)
    return None if allowed is None else len(allowed)


def allowed_cores(root: Path) -> set[int] | None:
    """Their numbers."""
    allowed = parse_ranges(read_fields(root / "proc/self/status").get("Cpus_allowed_list"))
    online = parse_ranges(read_text(root / "sys/devices/system/cpu/online"))
    if allowed is None:
        return None
    # the kernel's mask also holds CPUs that a virtual machine could get but does not have
    return allowed if online is None else allowed & online


def memory_bytes(root: Path) -> int | None:
    """Memory of the machine, whatever a control group allows of it."""
    kilobytes = re.fullmatch(r"(\d+)\s+kB", read_fields(root / "proc/meminfo").get("MemTotal", ""))
    return None if kilobytes is None else int(kilobytes[1]) * 1024


# Network interfaces

_LOOPBACK = 772
"""ARPHRD_LOOPBACK in linux/if_arp.h."""
_UNKNOWN_SPEED = 2**32 - 1
"""How some kernels print the -1 of a link without a speed."""


def list_nics(root: Path) -> tuple[Nic, ...]:
    """Every interface but loopback, then RDMA devices without one (such as EFA), each under its own name.

    What a link claims is not what it carries, and virtual ones often claim nothing: ``stash probe`` measures.
    """
    rdma: dict[str, Path] = {}
    for device in list_entries(root / "sys/class/infiniband"):
        names = [folder.name for folder in list_entries(device / "device/net")] or [device.name]
        rdma |= dict.fromkeys(names, device)
    found = []
    for folder in list_entries(root / "sys/class/net"):
        if not folder.is_dir() or read_number(folder / "type") == _LOOPBACK or folder.name == "lo":
            continue
        partner = rdma.pop(folder.name, None)
        # the link's claim in Mbit/s; reading it is an error while the link is down
        megabits = read_number(folder / "speed") or 0
        speed = megabits * 1e6 / 8 if 0 < megabits < _UNKNOWN_SPEED else None
        speed = speed or (_port_rate(partner) if partner else None)
        found.append(_describe_nic(folder, partner, speed, read_number(folder / "mtu")))
    alone = dict.fromkeys(
        device for name, device in rdma.items() if not (root / "sys/class/net" / name).exists()
    )
    return (*found, *(_describe_nic(device, device, _port_rate(device)) for device in alone))


def _describe_nic(
    folder: Path, rdma: Path | None, bytes_per_second: float | None, mtu: int | None = None
) -> Nic:
    device = resolve_link(folder / "device")
    driver = resolve_link(folder / "device/driver")
    node = numa_node(device) if device else None
    if device and node is None:  # virtio's devices sit on a PCI device
        node = numa_node(device.parent)
    return Nic(
        name=folder.name,
        bytes_per_second=bytes_per_second,
        driver=driver.name if driver else None,
        mtu=mtu,
        numa_node=node,
        rdma=rdma.name if rdma else None,
    )


def _port_rate(device: Path) -> float | None:
    """Of an RDMA device's first port: ``100 Gb/sec (4X EDR)``."""
    ports = list_entries(device / "ports")
    match = re.match(r"([0-9.]+) Gb/sec", read_text(ports[0] / "rate") or "") if ports else None
    return float(match[1]) * 1e9 / 8 or None if match else None


# The record


@dataclass(frozen=True)
class Sources:
    """Where the facts come from."""

    root: Path = Path("/")
    """What stands before ``proc`` and ``sys``."""
    nvml: Any = None
    """Stands in for the module pynvml."""
    fetch: Fetch = fetch_over_http
    """Asks a cloud's metadata service."""
    statvfs: disks.Statvfs = os.statvfs


def describe(
    data: Path | None = None,
    *,
    instance: str | None = None,
    ask_metadata: bool = False,
    sources: Sources | None = None,
) -> Host:
    """This machine as a record; ``data`` is a path whose disk is described, else the current folder.

    ``instance`` is believed as it is; without it, ``ask_metadata`` allows one question to the cloud's metadata
    service where the firmware names a cloud but no instance type.
    """
    sources = sources or Sources()
    root, path = sources.root, os.path.realpath(data or ".")
    mount = mount_of(read_mounts(root), path)
    with open_nvml(sources.nvml) as library:
        cards = describe_gpus(library, root) if library is not None else GpuInventory()
    nodes = parse_ranges(read_text(root / "sys/devices/system/node/online"))
    rented = cloud.find_rental(root, sources.fetch, given=instance, ask_metadata=ask_metadata)
    return Host(
        hostname=read_text(root / "proc/sys/kernel/hostname") or socket.gethostname(),
        cpu=cpu_model(root),
        cores=count_cores(root),
        memory_bytes=memory_bytes(root),
        kernel=read_text(root / "proc/sys/kernel/osrelease"),
        gpus=cards.gpus,
        topology=cards.topology,
        routes=cards.routes,
        disk=f"{mount.kind} on {mount.source}" if mount else None,
        disks=(disks.describe_disk(root, path, mount, sources.statvfs),),
        nics=list_nics(root),
        numa_nodes=None if nodes is None else len(nodes),
        allowed_nodes=allowed_nodes(root),
        vector=vector_level(root),
        huge_pages=huge_pages(root),
        limits=read_limits(root, disks.device_numbers(root, mount)),
        virtualization=read_text(root / "sys/class/dmi/id/sys_vendor"),
        cloud=rented.cloud,
        instance=rented.instance,
        instance_source=rented.source,
    )
