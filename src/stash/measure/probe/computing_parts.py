"""The parts of a machine that compute, one after the other: its cores, then its GPUs; and what held them back.

What the kernel and the driver tell of the time in which a part was busy stands beside its figures. A GPU that others
use is left alone unless that is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from stash.core.records.host import PartFigure, PartState, Unmeasured
from stash.measure.host.describe import vector_level
from stash.measure.host.gpu_readings import Ask, asker, read_gpu, state_of, users_of
from stash.measure.host.gpus import nvml, string
from stash.measure.linux import counters, run_queue
from stash.measure.probe.computing import CpuLane, DeviceWork, GpuLane, cpu_tasks, gpu_tasks, take_bursts
from stash.measure.probe.copies import cache_bytes
from stash.measure.probe.probe_orders import Product

_CPU_SHARE = 0.35
"""Of the time, on a machine with GPUs."""
_LOOKS_EVERY = 0.05

PartResults = list[PartFigure | PartState | Unmeasured]


@dataclass(frozen=True)
class ComputingMachine:
    """What is measured: cores, memory that is free, CUDA devices; and NVML, which a test plays."""

    cores: int
    free_bytes: int
    devices: int
    library: Any = None


def measure(
    machine: ComputingMachine, seconds: float, products: Sequence[Product] = (), force: bool = False
) -> PartResults:
    """Figures and state of the cores and of each GPU, within about ``seconds``."""
    share = _CPU_SHARE if machine.devices else 1.0
    found = _cores(machine, share * seconds, products)
    if machine.devices:
        with nvml(machine.library) as library:
            found += _gpus(machine.devices, library, (1 - share) * seconds, products, force)
    return found


def _cores(machine: ComputingMachine, seconds: float, products: Sequence[Product]) -> PartResults:
    before, quota, began = counters.totals(), run_queue.quota_periods(), time.monotonic()
    own = time.process_time()
    tasks = cpu_tasks(products, machine.cores, machine.free_bytes, cache_bytes(), vector_level())
    figures = take_bursts([(CpuLane(), tasks)], seconds)
    activity, elapsed, quota_now = counters.since(before), time.monotonic() - began, run_queue.quota_periods()
    throttled = others = None
    if quota is not None and quota_now is not None:
        throttled = (quota_now[0] - quota[0]) / max(1, quota_now[1] - quota[1])
    if activity.cpu_seconds is not None:
        others = (activity.cpu_seconds - (time.process_time() - own)) / elapsed
    return [*figures, PartState(device="cpu", steal=activity.steal, throttled=throttled, others_cores=others)]


@dataclass
class _Looks:
    """Readings of several GPUs, one each now and then."""

    asks: dict[str, Ask]
    readings: dict[str, list[PartState]] = field(default_factory=dict)
    at: float = 0.0

    def __call__(self) -> None:
        if time.monotonic() - self.at >= _LOOKS_EVERY:
            self.at = time.monotonic()
            for device, ask in self.asks.items():
                self.readings.setdefault(device, []).append(read_gpu(ask, device))


def _gpus(devices: int, library: Any, seconds: float, products: Sequence[Product], force: bool) -> PartResults:
    # before this process is on any of them: a container sees its own processes by other numbers than NVML
    known = {} if library is None else _known(library)
    looks, work, found = _Looks({}), list[DeviceWork](), PartResults()
    if library is None:
        why = "the driver's library NVML does not answer, so clocks, power, heat and errors are unknown"
        found.append(Unmeasured(link="compute, state of the GPUs", why=why))
    users = {}
    for index in range(devices):
        device = f"cuda:{index}"
        identity = str(getattr(torch.cuda.get_device_properties(index), "uuid", index))
        if identity in known:
            looks.asks[device], users[device] = known[identity]
        if users.get(device) and not force:
            del looks.asks[device]
            why = f"GPU {index} is in use by {', '.join(users[device])}; --force measures it all the same"
            found.append(Unmeasured(link=f"compute on {device}", why=why))
            continue
        tasks, missing = gpu_tasks(index, products)
        found += missing
        work.append((GpuLane(index), tasks))
    found += take_bursts(work, seconds, looks)
    for device, readings in looks.readings.items():
        found.append(state_of(readings, looks.asks[device], users[device]))
        if all(each.clock is None for each in readings):
            why = "the driver tells this user no clocks, so what holds one down is unknown"
            found.append(Unmeasured(link=f"compute, clock of {device}", why=why))
    return found


def _known(library: Any) -> dict[str, tuple[Ask, tuple[str, ...]]]:
    """By identity, how each GPU is asked, and its users."""
    asks = [
        asker(library, library.nvmlDeviceGetHandleByIndex(index)) for index in range(library.nvmlDeviceGetCount())
    ]
    return {
        string(identity).removeprefix("GPU-"): (ask, users_of(ask))
        for ask in asks
        if (identity := ask("UUID")) is not None
    }
