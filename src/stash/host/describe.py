"""What a machine is, without measuring it: CPU, memory, kernel, GPUs, the disk under the data.

Everything is read from /proc, /sys and NVML; what cannot be read stays ``None``. Links are measured by
``stash probe``, not here.
"""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from stash.records import Gpu, Host


def describe(data: Path | None = None) -> Host:
    """This machine as a record; ``data`` is a path whose disk is named."""
    with nvml() as library:
        gpus = _gpus(library) if library is not None else ()
        topology = _topology(library, len(gpus)) if library is not None and len(gpus) > 1 else None
    return Host(
        hostname=socket.gethostname(),
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=psutil.virtual_memory().total,
        kernel=platform.release(),
        gpus=gpus,
        topology=topology,
        disk=_disk(data or Path.cwd()),
        virtualization=_virtualization(),
    )


def count_gpus() -> int:
    """CUDA devices visible to a job started now: NVML's count, narrowed by CUDA_VISIBLE_DEVICES."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    with nvml() as library:
        present = int(library.nvmlDeviceGetCount()) if library is not None else 0
    if visible is None:
        return present
    named = [part for part in visible.split(",") if part.strip() and part.strip() != "-1"]
    return min(present, len(named))


@contextmanager
def nvml() -> Iterator[Any]:
    """NVML, initialised, or ``None`` on a machine without an NVIDIA driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no library, no driver, no device: NVML raises errors of its own for each
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _gpus(library: Any) -> tuple[Gpu, ...]:
    driver = _text(library.nvmlSystemGetDriverVersion())
    found = []
    for index in range(library.nvmlDeviceGetCount()):
        handle = library.nvmlDeviceGetHandleByIndex(index)
        found.append(
            Gpu(
                index=index,
                name=_text(library.nvmlDeviceGetName(handle)),
                memory_bytes=_asked(lambda h=handle: int(library.nvmlDeviceGetMemoryInfo(h).total)),
                driver=driver,
                pcie=_asked(
                    lambda h=handle: (
                        f"gen{library.nvmlDeviceGetCurrPcieLinkGeneration(h)} "
                        f"x{library.nvmlDeviceGetCurrPcieLinkWidth(h)}"
                    )
                ),
            )
        )
    return tuple(found)


def _asked(question: Any) -> Any:
    """The answer, or ``None`` where this GPU does not support the question."""
    try:
        return question()
    except Exception:  # NVMLError_NotSupported and its kin; the module may not even define them
        return None


_LEVELS = {
    0: "internal",
    10: "single switch",
    20: "multi switch",
    30: "host bridge",
    40: "node",
    50: "system",
}


def _topology(library: Any, count: int) -> str | None:
    handles = [library.nvmlDeviceGetHandleByIndex(i) for i in range(count)]
    rows = []
    for a in range(count):
        for b in range(a + 1, count):
            level = _asked(lambda x=handles[a], y=handles[b]: library.nvmlDeviceGetTopologyCommonAncestor(x, y))
            if level is not None:
                rows.append(f"{a}-{b} {_LEVELS.get(int(level), str(level))}")
    return ", ".join(rows) or None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _cpu_model() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), None)


def _disk(path: Path) -> str | None:
    """``ext4 on /dev/vda`` for the mount that holds ``path``."""
    real = str(path.resolve())
    mounts = [m for m in psutil.disk_partitions(all=True) if _holds(m.mountpoint, real)]
    if not mounts:
        return None
    mount = max(mounts, key=lambda m: len(m.mountpoint))
    return f"{mount.fstype} on {mount.device}"


def _holds(mountpoint: str, path: str) -> bool:
    return path == mountpoint or path.startswith(mountpoint.rstrip("/") + "/")


def _virtualization() -> str | None:
    try:
        return Path("/sys/class/dmi/id/sys_vendor").read_text().strip() or None
    except OSError:
        return None
