"""What the machine did during a block, and what this process read and held: as the kernel and NVML count it.

Every reading of the machine is one of running totals; a block's figures are the difference of two. What a machine
does not report is ``None``.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from glob import glob
from typing import Any, NamedTuple

from stash.core.imports import import_borrowed

_TICKS = os.sysconf("SC_CLK_TCK")
"""In a second."""


class CoreTimes(NamedTuple):
    """What the kernel has counted of some cores together, in seconds since boot."""

    number: int
    idle: float
    """Waiting for input, too."""
    steal: float
    """Taken away by the machine's own host."""
    at: float
    """When they were read, by a clock that does not jump."""

    @classmethod
    def sum_rows(cls, rows: Sequence[Sequence[str]], number: int, at: float) -> CoreTimes:
        """Of ``number`` cores; ``rows`` as in ``/proc/stat``."""
        ticks = [[int(each) for each in row[1:9]] for row in rows]
        return cls(
            number,
            sum(row[3] + row[4] for row in ticks) / _TICKS,
            sum(row[7] for row in ticks) / _TICKS,
            at,
        )

    def busy_since(self, before: CoreTimes) -> float:
        """Core seconds in which threads ran: those in which none did are exact to a tick, taken from the clock's.

        Kernels count what runs by who is found running at each tick, which in 0.3 s is off by 0.03 s; the time that a
        core is idle they measure. Of cores that were idle all the time it may be a tick below zero.
        """
        wall = self.number * (self.at - before.at)
        return wall - (self.idle - before.idle) - (self.steal - before.steal)


@dataclass(frozen=True)
class Totals:
    """Totals since boot; bytes."""

    cores: CoreTimes | None
    allowed: CoreTimes | None
    """Of ``cores``, those that this thread may run on."""
    sent: int | None
    read: int | None


def read_totals() -> Totals:
    """Read the totals now; takes a fraction of a millisecond."""
    cores = allowed = sent = read = None
    # Each fails by itself: not Linux, or a masked /proc.
    with suppress(OSError, ValueError, IndexError), open("/proc/stat") as file:
        together, *each = [
            line.split() for line in itertools.takewhile(lambda line: line.startswith("cpu"), file)
        ]
        at = time.monotonic()
        if any(map(int, together[1:])):  # some sandboxes have a file of zeros
            cores = allowed = CoreTimes.sum_rows([together], len(each), at)
            may = os.sched_getaffinity(0)
            own = [row for row in each if int(row[0][3:]) in may]
            if 0 < len(own) < len(each):  # containers may have numbers of their own
                allowed = CoreTimes.sum_rows(own, len(own), at)
    with suppress(OSError, ValueError, IndexError), open("/proc/net/dev") as file:
        interfaces = [line.split(":") for line in file.readlines()[2:]]
        sent = sum(
            int(counts.split()[8])
            for name, counts in interfaces
            # on others lie bonds, bridges and VLANs: these send what it sends, and count that, too
            if not glob(f"/sys/class/net/{name.strip()}/lower_*")
        )
    with suppress(OSError, ValueError, IndexError), open("/proc/diskstats") as file:
        # Block devices that lie on no other one (LVM, encryption, RAID) and on no file: what is
        # read counts once.
        devices = {
            name
            for name in os.listdir("/sys/block")
            if not name.startswith(("loop", "zram")) and not glob(f"/sys/block/{name}/slaves/*")
        }
        read = sum(int(row[5]) * 512 for row in map(str.split, file) if row[2] in devices)
    return Totals(cores, allowed, sent, read)


class Activity(NamedTuple):
    """What the machine did between two readings; ``cpu`` and ``steal`` are fractions of its cores' time."""

    cpu: float | None
    steal: float | None
    network_bytes: int | None
    """Sent on all interfaces that lie on no other, loopback included."""
    disk_bytes: int | None
    """Read from all block devices."""
    cpu_seconds: float | None = None
    """Of the cores that this thread may run on, whoever used them; without what the machine's own host took."""


def activity_since(before: Totals) -> Activity:
    """What happened from then until now."""
    now = read_totals()
    busy = steal = used = None
    if now.cores is not None and before.cores is not None:
        wall = now.cores.number * (now.cores.at - before.cores.at)
        if wall > 0:
            busy = now.cores.busy_since(before.cores) / wall
            steal = (now.cores.steal - before.cores.steal) / wall
    if now.allowed is not None and before.allowed is not None:
        used = now.allowed.busy_since(before.allowed)
    return (
        Activity(  # four decimals: a tick is 10 ms, and blocks are seldom of more than ten thousand
            cpu=None if busy is None else round(busy, 4),
            steal=None if steal is None else round(steal, 4),
            network_bytes=_subtract(now.sent, before.sent),
            disk_bytes=_subtract(now.read, before.read),
            cpu_seconds=None if used is None else round(used, 4),
        )
    )


def _subtract(last: int | None, first: int | None) -> int | None:
    return None if first is None or last is None else last - first


class BytesRead(NamedTuple):
    """What this process has read since it began, its threads and the children it waited for included."""

    called: int
    """Through system calls, whatever from: files, pipes, some sockets; not what it mapped."""
    storage: int
    """Fetched from storage for it, through calls or mappings, read ahead included."""

    def since(self, before: BytesRead) -> BytesRead:
        """What it has read after ``before``."""
        return BytesRead(self.called - before.called, self.storage - before.storage)


def bytes_read() -> BytesRead | None:
    """Bytes that this process has read; None where the kernel does not say."""
    try:
        words = os.pread(_own_counters(), 256, 0).split(None, 10)
        # the numbers after ``rchar:`` and ``read_bytes:``
        return BytesRead(int(words[1]), int(words[9]))
    except (OSError, ValueError, IndexError):
        return None


@cache
def _own_counters() -> int:
    """``/proc/self/io`` of the process that opened it, kept open: it is read twice for every batch."""
    return os.open("/proc/self/io", os.O_RDONLY | os.O_CLOEXEC)


# a fork's descriptor is of its parent's counters
os.register_at_fork(after_in_child=_own_counters.cache_clear)


def peak_resident_bytes() -> int | None:
    """The most that was resident at once since the process began its program (VmHWM); None where unknown."""
    try:
        with open("/proc/self/status") as file:
            line = next(line for line in file if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError, StopIteration):
        return None


@cache
def _nvml_handle(uuid: str) -> Any:
    pynvml = import_borrowed("pynvml")
    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetHandleByUUID(uuid)


def gpu_utilisation(uuid: str | None) -> float | None:
    """Busy fraction of the GPU ``GPU-…`` over NVML's last sample period, or None."""
    if uuid is None:
        return None
    try:
        return (
            float(import_borrowed("pynvml").nvmlDeviceGetUtilizationRates(_nvml_handle(uuid)).gpu)
            / 100
        )
    except Exception:  # NVML raises its own family of errors, and is optional altogether
        return None
