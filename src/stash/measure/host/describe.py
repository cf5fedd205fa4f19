"""What a machine is, without measuring it: CPU, memory, limits, GPUs, network, disk, cloud.

Puts together what the modules beside it read from /proc, /sys and NVML; what cannot be read stays ``None``.
Links are measured by ``stash.measure.probe``, not here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stash.base.records import Host
from stash.measure.host import cloud, disks, system
from stash.measure.host.gpus import Described, count_gpus, gpus, nvml
from stash.measure.host.limits import limits
from stash.measure.host.metadata import Fetch, over_http
from stash.measure.host.nics import nics
from stash.measure.linux.files import text

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
    with nvml(sources.nvml) as library:
        cards = gpus(library, root) if library is not None else Described()
    rented = cloud.rented(root, sources.fetch, given=instance, ask_metadata=ask_metadata)
    return Host(
        hostname=system.hostname(root),
        cpu=system.cpu_model(root),
        cores=system.cores(root),
        memory_bytes=system.memory_bytes(root),
        kernel=system.kernel(root),
        gpus=cards.gpus,
        topology=cards.topology,
        routes=cards.routes,
        disk=disks.summary(root, path),
        disks=(disks.disk(root, path, sources.statvfs),),
        nics=nics(root),
        numa_nodes=system.numa_nodes(root),
        limits=limits(root, disks.device_numbers(root, path)),
        virtualization=text(root / "sys/class/dmi/id/sys_vendor"),
        cloud=rented.cloud,
        instance=rented.instance,
        instance_source=rented.source,
    )
