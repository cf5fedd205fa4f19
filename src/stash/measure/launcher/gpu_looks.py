"""What holds the job's GPUs back: other processes on them, and clocks below the highest; asked of NVML now and then.

By whoever waits for the job or watches it, never in it. What a GPU gave to others, in which steps, NVML does not
tell: nothing is subtracted for it. Containers see their own processes by other numbers than NVML: there others stay
unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Literal

from stash.core.records.circumstances import GpuState
from stash.core.records.host import PartState
from stash.measure.host.energy_counters import EnergyCount, read_gpus
from stash.measure.host.gpu_readings import Ask, Hold, make_asker, read_errors, read_gpu
from stash.measure.host.gpus import count, open_nvml

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

    ask: Ask
    since: int = 0
    """NVML's time in microseconds of the newest sample that was read."""
    ours: bool = False
    """Whether a process of the job was seen on it."""
    others: list[float] = field(default_factory=list)
    readings: list[PartState] = field(default_factory=list)

    def look(self, is_ours: Callable[[int], bool]) -> None:
        """Take what there is to know now, if a process of the job is on it."""
        running = self.ask("ComputeRunningProcesses") or ()
        if not any(is_ours(process.pid) for process in running):
            return
        first, self.ours = self.since == 0, True
        used = self.ask("ProcessUtilization", self.since)
        self.since = max((sample.timeStamp for sample in used or ()), default=self.since)
        if used is not None and not first:  # of the first look they are from before
            others = sum(min(sample.smUtil, 100) for sample in used if not is_ours(sample.pid))
            self.others.append(others / 100)
        self.readings.append(read_gpu(self.ask))

    def make_state(self, index: int) -> GpuState:
        """All looks together."""
        errors = read_errors(self.ask)
        clocks = [reading.clock for reading in self.readings if reading.clock is not None]
        held = [reading.held_by for reading in self.readings if reading.held_by is not None]
        seen = Counter(name for holds in held for name in {_HELD[hold] for hold in holds})
        return GpuState(
            index=index,
            others=_mean(self.others),
            clock=_mean(clocks),
            held_by={name: round(count / len(held), 3) for name, count in sorted(seen.items())},
            memory_errors=errors["memory_errors"],
            link_errors=errors["link_errors"],
        )


class GpuLooks:
    """The GPUs of this machine; ``library`` stands in for pynvml. Nothing is asked before the first look."""

    def __init__(self, library: Any = None) -> None:
        self._library, self._open = library, ExitStack()
        self._gpus: dict[int, _SampledGpu] | None = None

    def sample_gpus(self, is_ours: Callable[[int], bool]) -> None:
        """Ask each GPU once; ``is_ours`` tells the job's processes by their numbers."""
        if self._gpus is None:
            library = self._open.enter_context(open_nvml(self._library))
            handles = {
                index: make_asker(library, index)("HandleByIndex")
                for index in range(count(library))
            }
            self._gpus = {
                index: _SampledGpu(make_asker(library, handle))
                for index, handle in handles.items()
                if handle is not None
            }
        for gpu in self._gpus.values():
            gpu.look(is_ours)

    def read_energy(self, seconds: float) -> EnergyCount:
        """The energy that GPUs of the job have drawn until now, which is ``seconds`` by the caller's clock."""
        found = self._gpus or {}
        return read_gpus({index: gpu.ask for index, gpu in found.items() if gpu.ours}, seconds)

    def reset_counts(self) -> None:
        """Begin to count again."""
        self._gpus = self._gpus and {
            index: _SampledGpu(gpu.ask, gpu.since) for index, gpu in self._gpus.items()
        }

    def list_states(self) -> tuple[GpuState, ...]:
        """Since counting began, the states of every GPU that a process of the job was seen on."""
        return tuple(gpu.make_state(index) for index, gpu in (self._gpus or {}).items() if gpu.ours)


def _mean(values: list[float]) -> float | None:
    return round(sum(values) / len(values), 3) if values else None
