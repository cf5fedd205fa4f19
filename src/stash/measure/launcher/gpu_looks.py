"""What holds the job's GPUs back: other processes on them, and clocks below the highest; asked of NVML now and then.

By whoever waits for the job or watches it, never in it. What a GPU gave to others, in which steps, NVML does not
tell: nothing is subtracted for it. Containers see their own processes by other numbers than NVML: there others stay
unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from stash.core.records.circumstances import GpuState
from stash.measure.host.energy_counters import EnergyCount, read_gpus
from stash.measure.host.gpu_readings import Hold, make_asker, read_errors, read_gpu
from stash.measure.host.gpus import open_nvml

_HELD: dict[Hold, Literal["power", "heat", "hardware"]] = {
    "power cap": "power",
    "power brake": "power",
    "heat": "heat",
    "hardware": "hardware",
}
"""What a state calls it."""


@dataclass
class _SampledGpu:
    """One GPU, over all looks."""

    handle: Any
    ours: bool = False
    """Whether a process of the job was seen on it."""
    since: int = 0
    """NVML's time in microseconds of the newest sample that was read."""
    others: list[float] = field(default_factory=list)
    clocks: list[float] = field(default_factory=list)
    held: Counter[str] = field(default_factory=Counter)
    looks: int = 0


class GpuLooks:
    """The GPUs of this machine; ``library`` stands in for pynvml. Nothing is asked before the first look."""

    def __init__(self, library: Any = None) -> None:
        self._library, self._open = library, ExitStack()
        self._gpus: dict[int, _SampledGpu] | None = None

    def sample_gpus(self, ours: Callable[[int], bool]) -> None:
        """Ask each GPU once; ``ours`` tells the job's processes by their numbers."""
        if self._gpus is None:
            self._gpus = self._find_gpus()
        for seen in self._gpus.values():
            self._look_at(seen, ours)

    def _find_gpus(self) -> dict[int, _SampledGpu]:
        self._library = self._open.enter_context(open_nvml(self._library))
        count = 0 if self._library is None else int(self._query("nvmlDeviceGetCount") or 0)
        handles = {
            index: self._query("nvmlDeviceGetHandleByIndex", index) for index in range(count)
        }
        return {
            index: _SampledGpu(handle) for index, handle in handles.items() if handle is not None
        }

    def _query(self, question: str, *arguments: Any) -> Any:
        with suppress(Exception):  # this GPU, driver or binding has no answer
            return getattr(self._library, question)(*arguments)
        return None

    def _look_at(self, seen: _SampledGpu, ours: Callable[[int], bool]) -> None:
        running = self._query("nvmlDeviceGetComputeRunningProcesses", seen.handle) or ()
        if not any(ours(each.pid) for each in running):
            return
        first, seen.ours = seen.since == 0, True
        used = self._query("nvmlDeviceGetProcessUtilization", seen.handle, seen.since)
        seen.since = max((each.timeStamp for each in used or ()), default=seen.since)
        if used is not None and not first:  # of the first look they are from before
            seen.others.append(
                sum(min(each.smUtil, 100) for each in used if not ours(each.pid)) / 100
            )
        now = read_gpu(make_asker(self._library, seen.handle))
        if now.clock is not None:
            seen.clocks.append(now.clock)
        if now.held_by is not None:
            seen.looks += 1
            seen.held.update({_HELD[hold] for hold in now.held_by})

    def read_energy(self, seconds: float) -> EnergyCount:
        """The energy that GPUs of the job have drawn until now, which is ``seconds`` by the caller's clock."""
        found = self._gpus or {}
        ours = {index: seen.handle for index, seen in found.items() if seen.ours}
        asks = {index: make_asker(self._library, handle) for index, handle in ours.items()}
        return read_gpus(asks, seconds)

    def reset_counts(self) -> None:
        """Begin to count again."""
        for seen in (self._gpus or {}).values():
            seen.others, seen.clocks, seen.held, seen.looks, seen.ours = [], [], Counter(), 0, False

    def list_states(self) -> tuple[GpuState, ...]:
        """Since counting began, the states of every GPU that a process of the job was seen on."""
        return tuple(
            self._gpu_state(index, seen) for index, seen in (self._gpus or {}).items() if seen.ours
        )

    def _gpu_state(self, index: int, seen: _SampledGpu) -> GpuState:
        errors = read_errors(make_asker(self._library, seen.handle))
        return GpuState(
            index=index,
            others=_mean(seen.others),
            clock=_mean(seen.clocks),
            held_by={
                name: round(count / seen.looks, 3) for name, count in sorted(seen.held.items())
            },
            memory_errors=errors["memory_errors"],
            link_errors=errors["link_errors"],
        )


def _mean(values: list[float]) -> float | None:
    return round(sum(values) / len(values), 3) if values else None
