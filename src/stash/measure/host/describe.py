"""What a machine is, without measuring it: processor, memory, limits, devices; each as a record of the artefact."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stash.core.records.host import Host, Limits
from stash.measure.host import cloud, devices
from stash.measure.host.cloud import Fetch, over_http
from stash.measure.host.devices import nics
from stash.measure.host.gpus import Described, count_gpus, gpus, nvml
from stash.measure.linux.procfs import Mount, holds, mounts, text

# System ----------------------------------------------------------------------------------------------------
# The machine around the devices: processor, cores, memory, NUMA nodes, kernel, name.
#
# Reads /proc and /sys under a given root. Knows nothing of control groups' limits, devices or clouds.


def hostname(root: Path) -> str:
    return text(root / "proc/sys/kernel/hostname") or socket.gethostname()


def kernel(root: Path) -> str | None:
    return text(root / "proc/sys/kernel/osrelease")


def cpu_model(root: Path) -> str | None:
    """As the kernel names it; ARM kernels give numbers only, ``ARM implementer 0x41 part 0xd40``."""
    lines = (text(root / "proc/cpuinfo") or "").splitlines()
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    if "model name" in facts:
        return facts["model name"] or None
    if "CPU implementer" in facts and "CPU part" in facts:
        return f"ARM implementer {facts['CPU implementer']} part {facts['CPU part']}"
    return None


def cores(root: Path) -> int | None:
    """Cores this process may run on: its affinity, which includes a container's set of CPUs."""
    allowed = ranges(_status(root).get("Cpus_allowed_list"))
    online = ranges(text(root / "sys/devices/system/cpu/online"))
    if allowed is None:
        return None
    # the kernel's mask also holds CPUs that a virtual machine could get but does not have
    return len(allowed if online is None else allowed & online)


def memory_bytes(root: Path) -> int | None:
    """Memory of the machine, whatever a control group allows of it."""
    for line in (text(root / "proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name == "MemTotal" and value.split()[1:] == ["kB"] and value.split()[0].isdigit():
            return int(value.split()[0]) * 1024
    return None


def numa_nodes(root: Path) -> int | None:
    nodes = ranges(text(root / "sys/devices/system/node/online"))
    return None if nodes is None else len(nodes)


def ranges(listed: str | None) -> set[int] | None:
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


def _status(root: Path) -> dict[str, str]:
    lines = (text(root / "proc/self/status") or "").splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


# Limits ----------------------------------------------------------------------------------------------------
# What control groups allow this process, version 1 and version 2: processor time, memory, reading from a disk.
#
# A limit may be set on any group above one's own, so every group up to the top that is visible is asked and the
# tightest answer counts. Sets no limits (the testbed does); knows nothing of CPU sets, which are the affinity's.

_UNLIMITED_BYTES = 2**62
"""Version 1 writes "no limit" as the largest page-aligned integer; the page's size differs between machines."""


def limits(root: Path, devices: Iterable[str] = ()) -> Limits | None:
    """The limits of this process; ``devices`` are the ``major:minor`` that its data lie on.

    ``None`` if no control group can be seen, which is not the same as no limit.
    """
    table, own = mounts(root), _memberships(root)
    numbers = frozenset(devices)
    version1 = {name: _folders(root, table, own, name) for name in ("cpu", "memory", "blkio")}
    version2 = _folders(root, table, own, "")
    if not version2 and not any(version1.values()):
        return None
    return Limits(
        cpus=_tightest((version1["cpu"], _quota), (version2, _cpu_max)),
        memory_bytes=_whole(_tightest((version1["memory"], _limit_in_bytes), (version2, _memory_max))),
        read_bytes_per_second=_tightest(
            (version1["blkio"], lambda folder: _throttle(folder, numbers)),
            (version2, lambda folder: _io_max(folder, numbers)),
        ),
    )


def _memberships(root: Path) -> dict[str, str]:
    """Controller to the path of this process's group; version 2 has the empty name."""
    own: dict[str, str] = {}
    for line in (text(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        own |= dict.fromkeys(controllers.split(","), path)
    return own


def _folders(root: Path, table: list[Mount], own: dict[str, str], controller: str) -> list[Path]:
    """The folders of this process's group and of all above it, as far up as they are mounted."""
    kind = "cgroup" if controller else "cgroup2"
    mount = next((m for m in table if m.kind == kind and (not controller or controller in m.options)), None)
    if mount is None or controller not in own:
        return []
    path = own[controller]
    # a container may see the path of a group that lies outside what is mounted; the mount is then its own group
    inside = path[len(mount.root.rstrip("/")) :].strip("/") if holds(mount.root, path) else ""
    top = root / mount.point.strip("/")
    below = Path(inside).parts if ".." not in Path(inside).parts else ()
    return [top.joinpath(*below[:depth]) for depth in range(len(below), -1, -1)]


LimitOf = Callable[[Path], float | None]
"""What reads a group's limit from its folder; ``None`` where there is none."""


def _tightest(*asked: tuple[list[Path], LimitOf]) -> float | None:
    answers = [limit_of(folder) for folders, limit_of in asked for folder in folders]
    return min((answer for answer in answers if answer is not None), default=None)


def _quota(folder: Path) -> float | None:
    quota, period = (_count(text(folder / f"cpu.cfs_{name}_us")) for name in ("quota", "period"))
    return quota / period if quota and period else None  # a quota of -1 is none


def _cpu_max(folder: Path) -> float | None:
    quota, period = ([*(text(folder / "cpu.max") or "").split(), "", ""])[:2]
    allowed, per = _count(quota), _count(period)
    return allowed / per if allowed and per else None


def _limit_in_bytes(folder: Path) -> float | None:
    limit = _count(text(folder / "memory.limit_in_bytes"))
    return None if limit is None or limit >= _UNLIMITED_BYTES else limit


def _memory_max(folder: Path) -> float | None:
    return _count(text(folder / "memory.max"))


def _throttle(folder: Path, devices: frozenset[str]) -> float | None:
    """Lines of ``254:0 52428800``."""
    fields = _rows(folder / "blkio.throttle.read_bps_device")
    return _least(row[1] for row in fields if row[0] in devices and len(row) == 2)


def _io_max(folder: Path, devices: frozenset[str]) -> float | None:
    """Lines of ``254:0 rbps=52428800 wbps=max riops=max wiops=max``."""
    settings = [setting for row in _rows(folder / "io.max") if row[0] in devices for setting in row[1:]]
    return _least(setting.removeprefix("rbps=") for setting in settings if setting.startswith("rbps="))


def _rows(file: Path) -> list[list[str]]:
    return [row for line in (text(file) or "").splitlines() if (row := line.split())]


def _least(counts: Iterable[str]) -> float | None:
    return min((count for count in map(_count, counts) if count is not None), default=None)


def _count(content: str | None) -> int | None:
    """A number of units; ``max`` and ``-1`` are no limit, and so is what is not a number."""
    return int(content) if content is not None and content.isdigit() else None


def _whole(count: float | None) -> int | None:
    return None if count is None else int(count)


# Describe --------------------------------------------------------------------------------------------------
# What a machine is, without measuring it: CPU, memory, limits, GPUs, network, disk, cloud.
#
# Puts together what the modules beside it read from /proc, /sys and NVML; what cannot be read stays ``None``. Links
# are measured by ``stash.measure.probe``, not here.

__all__ = ["Sources", "count_gpus", "describe", "nvml"]


@dataclass(frozen=True)
class Sources:
    """Where the facts come from."""

    root: Path = Path("/")
    """What stands before ``proc`` and ``sys``."""
    nvml: Any = None
    """Stands in for the module pynvml."""
    fetch: Fetch = over_http
    """Asks a cloud's metadata service."""
    statvfs: devices.Statvfs = os.statvfs


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
    with nvml(sources.nvml) as library:
        cards = gpus(library, root) if library is not None else Described()
    rented = cloud.rented(root, sources.fetch, given=instance, ask_metadata=ask_metadata)
    return Host(
        hostname=hostname(root),
        cpu=cpu_model(root),
        cores=cores(root),
        memory_bytes=memory_bytes(root),
        kernel=kernel(root),
        gpus=cards.gpus,
        topology=cards.topology,
        routes=cards.routes,
        disk=devices.summary(root, path),
        disks=(devices.disk(root, path, sources.statvfs),),
        nics=nics(root),
        numa_nodes=numa_nodes(root),
        limits=limits(root, devices.device_numbers(root, path)),
        virtualization=text(root / "sys/class/dmi/id/sys_vendor"),
        cloud=rented.cloud,
        instance=rented.instance,
        instance_source=rented.source,
    )
