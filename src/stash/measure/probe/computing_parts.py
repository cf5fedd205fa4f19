"""The parts of a machine that compute, one after the other: its cores, then its GPUs; and what held them back.

What the kernel and the driver tell of the time in which a part was busy stands beside its figures. A GPU that others
use is left alone unless that is asked for.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from stash.core.records.host import PartFigure, PartState, Unmeasured
from stash.measure.host.describe import vector_level
from stash.measure.host.gpu_readings import Ask, make_asker, read_gpu, state_of, users_of
from stash.measure.host.gpus import count, decode_text, open_nvml
from stash.measure.linux import counters, run_queue
from stash.measure.probe.computing import (
    CpuLane,
    DeviceWork,
    GpuLane,
    TimedDevice,
    cpu_tasks,
    gpu_tasks,
    take_bursts,
)
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
    users: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """By device, processes of others that compute on it."""
    library: Any = None


def gpu_users(devices: int, library: Any = None) -> dict[int, tuple[str, ...]]:
    """By device, who computes on it; asked before this process does: containers hide which of them it is."""
    if not devices:
        return {}
    with open_nvml(library) as answering:
        known = {} if answering is None else _find_known(answering)
    found = {
        index: known[name].users for index in range(devices) if (name := _identity(index)) in known
    }
    return {index: users for index, users in found.items() if users}


def why_left_alone(users: Mapping[int, tuple[str, ...]]) -> dict[int, str]:
    """By device that others compute on, a sentence."""
    return {
        index: f"GPU {index} is in use by {', '.join(names)}; --force measures it all the same"
        for index, names in users.items()
    }


def measure(
    machine: ComputingMachine, seconds: float, products: Sequence[Product] = (), force: bool = False
) -> PartResults:
    """Figures and state of the cores and of each GPU, within about ``seconds``."""
    share = _CPU_SHARE if machine.devices else 1.0
    found = _measure_cores(machine, share * seconds, products)
    if machine.devices:
        with open_nvml(machine.library) as library:
            found += _measure_gpus(machine, library, (1 - share) * seconds, products, force)
    return found


def _measure_cores(
    machine: ComputingMachine, seconds: float, products: Sequence[Product]
) -> PartResults:
    before, quota, began = counters.read_totals(), run_queue.quota_periods(), time.monotonic()
    own = time.process_time()
    tasks = cpu_tasks(products, machine.cores, machine.free_bytes, cache_bytes(), vector_level())
    figures = take_bursts([(CpuLane(), tasks)], seconds)
    activity, elapsed, quota_now = (
        counters.activity_since(before),
        time.monotonic() - began,
        run_queue.quota_periods(),
    )
    throttled = others = None
    if quota is not None and quota_now is not None:
        throttled = (quota_now[0] - quota[0]) / max(1, quota_now[1] - quota[1])
    if activity.cpu_seconds is not None:
        others = (activity.cpu_seconds - (time.process_time() - own)) / elapsed
    return [
        *figures,
        PartState(device="cpu", steal=activity.steal, throttled=throttled, others_cores=others),
    ]


@dataclass(frozen=True)
class _Watched:
    """How the driver is asked about one device, and who computed on it before."""

    ask: Ask
    users: tuple[str, ...] = ()


@dataclass
class _Looks:
    """Readings of GPUs while they are busy, of one GPU each time: those of an idle one are of its clock at rest."""

    watched: Mapping[str, _Watched]
    readings: dict[str, list[PartState]] = field(default_factory=dict)
    at: float = 0.0

    def __call__(self, lanes: Sequence[TimedDevice]) -> None:
        asked = [lane for lane in lanes if lane.name in self.watched]
        if not asked or time.monotonic() - self.at < _LOOKS_EVERY:
            return
        self.at = time.monotonic()
        lane = min(asked, key=lambda lane: len(self.readings.get(lane.name, ())))
        reading = read_gpu(self.watched[lane.name].ask, lane.name)
        if lane.is_busy():  # it was so all the while
            self.readings.setdefault(lane.name, []).append(reading)


def _measure_gpus(
    machine: ComputingMachine,
    library: Any,
    seconds: float,
    products: Sequence[Product],
    force: bool,
) -> PartResults:
    known = {} if library is None else _find_known(library)
    watched, work, found = dict[str, _Watched](), list[DeviceWork](), PartResults()
    if library is None:
        why = "the driver's library NVML does not answer, so clocks, power, heat and errors are unknown"
        found.append(Unmeasured(link="compute, state of the GPUs", why=why))
    left_alone = {} if force else why_left_alone(machine.users)
    for index in range(machine.devices):
        device = f"cuda:{index}"
        one = known.get(_identity(index))
        if one is None and library is not None:
            why = "NVML knows no GPU by the identity that PyTorch gives it, so its state and its users are unknown"
            found.append(Unmeasured(link=f"compute, state of {device}", why=why))
        if index in left_alone:
            found.append(Unmeasured(link=f"compute on {device}", why=left_alone[index]))
            continue
        if one is not None:
            watched[device] = _Watched(one.ask, machine.users.get(index, ()))
        tasks, missing = gpu_tasks(index, products)
        found += missing
        work.append((GpuLane(index), tasks))
    looks = _Looks(watched)
    found += take_bursts(work, seconds, looks)
    work.clear()
    torch.cuda.empty_cache()  # what other ranks and parts need is the driver's again
    for device, one in watched.items():
        readings = looks.readings.get(device) or [PartState(device=device)]
        found.append(state_of(readings, one.ask, one.users))
        if all(each.clock is None for each in readings):
            why = "the driver tells this user no clocks, so what holds one down is unknown"
            found.append(Unmeasured(link=f"compute, clock of {device}", why=why))
    return found


def _identity(index: int) -> str:
    """As PyTorch gives it: of a slice its own; without the word that NVML puts before it."""
    identity = getattr(torch.cuda.get_device_properties(index), "uuid", "")
    return str(identity).removeprefix("GPU-").removeprefix("MIG-")


def _find_known(library: Any) -> dict[str, _Watched]:
    """By identity, each GPU, and each slice of one: its users are its own, its clock and heat the whole GPU's.

    One that is lost answers nothing, and is left out.
    """
    found: dict[str, _Watched] = {}
    for index in range(count(library)):
        with suppress(Exception):  # NVML has a class for each error
            handle = library.nvmlDeviceGetHandleByIndex(index)
            ask = make_asker(library, handle)
            numbers = range(ask("MaxMigDeviceCount") or 0)
            slices = (ask("MigDeviceHandleByIndex", number) for number in numbers)
            for part in (handle, *(part for part in slices if part is not None)):
                own = make_asker(library, part)
                if (identity := own("UUID")) is not None:
                    name = decode_text(identity).removeprefix("GPU-").removeprefix("MIG-")
                    found[name] = _Watched(ask, users_of(own))
    return found
