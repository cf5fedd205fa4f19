"""The machine around the devices: processor, cores, memory, NUMA nodes, kernel, name.

Reads /proc and /sys under a given root. Knows nothing of control groups' limits, devices or clouds.
"""

from __future__ import annotations

import socket
from pathlib import Path

from stash.measure.linux.files import text


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
