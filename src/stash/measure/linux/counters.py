"""What the machine did during a block: CPU, steal, network, disk and GPU, as the kernel and NVML count it; and what a
process read.

Every reading is one of running totals; a block's figures are the difference of two. What a machine
does not tell is ``None``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from stash.core.imports import borrowed


@dataclass(frozen=True)
class Totals:
    """Totals since boot: CPU ticks, bytes."""

    busy: int | None
    total: int | None
    steal: int | None
    sent: int | None
    read: int | None


def totals() -> Totals:
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


class Activity(NamedTuple):
    """What the machine did between two readings; ``cpu`` and ``steal`` are fractions of its cores' time."""

    cpu: float | None
    steal: float | None
    network_bytes: int | None
    """Sent on all interfaces, loopback included."""
    disk_bytes: int | None
    """Read from all block devices."""


_DECIMALS = 4
"""Of a fraction: a tick is 10 ms, and blocks are seldom of more than ten thousand."""


def since(before: Totals) -> Activity:
    """What happened from then until now."""
    now = totals()
    ticks = _less(now.total, before.total)
    busy, steal = _less(now.busy, before.busy), _less(now.steal, before.steal)
    return Activity(
        cpu=round(busy / ticks, _DECIMALS) if ticks and busy is not None else None,
        steal=round(steal / ticks, _DECIMALS) if ticks and steal is not None else None,
        network_bytes=_less(now.sent, before.sent),
        disk_bytes=_less(now.read, before.read),
    )


def _less(last: int | None, first: int | None) -> int | None:
    return None if first is None or last is None else last - first


class BytesRead(NamedTuple):
    """What this process has read since it began, its threads and the children it waited for included."""

    called: int
    """Through system calls, whatever from: files, pipes, some sockets; not what it mapped."""
    storage: int
    """Fetched from storage for it, through calls or mappings, read ahead included."""


class _OwnCounters:
    """``/proc/self/io`` of the process that opened it, kept open: it is read twice for every batch."""

    descriptor: int | None = None


def _forget() -> None:
    _OwnCounters.descriptor = None


os.register_at_fork(after_in_child=_forget)  # a fork inherits the descriptor, which tells of its parent


_CALLED_WORD, _LAST_WORD = 1, 9
"""Of the file's words: the numbers after ``rchar:`` and ``read_bytes:``."""


def bytes_read() -> BytesRead | None:
    """Of this process; None where the kernel does not tell."""
    try:
        if _OwnCounters.descriptor is None:
            _OwnCounters.descriptor = os.open("/proc/self/io", os.O_RDONLY | os.O_CLOEXEC)
        words = os.pread(_OwnCounters.descriptor, 256, 0).split(None, _LAST_WORD + 1)
        return BytesRead(int(words[_CALLED_WORD]), int(words[_LAST_WORD]))
    except (OSError, ValueError, IndexError):
        return None


def gpu_utilisation(uuid: str | None) -> float | None:
    """Busy fraction of the GPU ``GPU-…`` over NVML's last sample period, or None."""
    if uuid is None:
        return None
    try:
        return float(borrowed("pynvml").nvmlDeviceGetUtilizationRates(_nvml_handle(uuid)).gpu) / 100
    except Exception:  # NVML raises its own family of errors, and is optional altogether
        return None


@cache
def _nvml_handle(uuid: str) -> Any:
    pynvml = borrowed("pynvml")
    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetHandleByUUID(uuid)
