"""What the machine did during a block: CPU, steal, network, disk and GPU, as the kernel and NVML count it.

Every reading is a snapshot of running totals; a block's figures are the difference of two. What a machine
does not tell is ``None``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

_nvml: Any = None


@dataclass(frozen=True)
class Totals:
    """Totals since boot: CPU ticks, bytes."""

    busy: int | None
    total: int | None
    steal: int | None
    sent: int | None
    read: int | None


def snapshot() -> Totals:
    """Read the totals now; takes a fraction of a millisecond."""
    busy = total = steal = None
    try:
        with open("/proc/stat") as file:
            ticks = [int(part) for part in file.readline().split()[1:9]]
        total, steal = sum(ticks), ticks[7]
        busy = total - ticks[3] - ticks[4] - steal
    except (OSError, ValueError, IndexError):
        pass  # not Linux, or a masked /proc
    return Totals(busy, total, steal, _sent(), _read())


def _sent() -> int | None:
    try:
        with open("/proc/net/dev") as file:
            return sum(int(line.split(":")[1].split()[8]) for line in file.readlines()[2:])
    except (OSError, ValueError, IndexError):
        return None


def _read() -> int | None:
    try:
        devices = set(os.listdir("/sys/block"))
        with open("/proc/diskstats") as file:
            rows = [line.split() for line in file]
        return sum(int(row[5]) * 512 for row in rows if row[2] in devices)
    except (OSError, ValueError, IndexError):
        return None


def difference(before: Totals, after: Totals) -> dict[str, float | int | None]:
    """The block's figures, named as in ``records.Block``."""

    def delta(name: str) -> int | None:
        first, last = getattr(before, name), getattr(after, name)
        return None if first is None or last is None else last - first

    ticks = delta("total")
    busy, steal = delta("busy"), delta("steal")
    return {
        "cpu": busy / ticks if ticks and busy is not None else None,
        "steal": steal / ticks if ticks and steal is not None else None,
        "network_bytes": delta("sent"),
        "disk_bytes": delta("read"),
    }


def gpu_utilisation(device: Any) -> float | None:
    """Busy fraction of a CUDA device over NVML's last sample period, or None."""
    global _nvml
    if getattr(device, "type", None) != "cuda":
        return None
    try:
        import pynvml

        if _nvml is None:
            pynvml.nvmlInit()
            _nvml = pynvml.nvmlDeviceGetHandleByUUID(_uuid(device))
        return float(pynvml.nvmlDeviceGetUtilizationRates(_nvml).gpu) / 100
    except Exception:  # NVML raises its own family of errors, and is optional altogether
        return None


def _uuid(device: Any) -> str:
    import torch

    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"
