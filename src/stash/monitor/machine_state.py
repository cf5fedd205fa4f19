"""What a machine did meanwhile: the facts beside a rank that is late, and in words which of them may be why.

A node's watcher reads them whenever it looks at its ranks' processes. What the kernel or the driver does not tell is
``None``; that a machine is slow by one of them is likely, not proven.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from stash.analysis.stability import shared_gpus, slowed_gpus
from stash.core.formatting import join_names
from stash.core.records.circumstances import EnergyPart
from stash.measure.host.energy_counters import EnergyCount, read_packages, subtract_energy
from stash.measure.launcher.gpu_looks import GpuLooks
from stash.measure.linux import run_queue
from stash.measure.linux.counters import Activity
from stash.monitor.records import MachineState

_CPUS = Path("/sys/devices/system/cpu")
_MIN_SHARE = 0.02
_MIN_CORES = 0.5
_MAX_MACHINES = 8


def seconds_of_heat(cpus: Path = _CPUS) -> dict[str, float]:
    """Seconds since boot that each core and package ran slower for heat; of Intel's, since Linux 5.6."""
    found = {}
    for path in cpus.glob("cpu[0-9]*/thermal_throttle/*_throttle_total_time_ms"):
        with suppress(OSError, ValueError):
            found[str(path)] = int(path.read_text()) * 1e-3
    return found


class MachineLooks:
    """Looks at this machine now and then; ``gpus``, ``quota``, ``hot`` and ``packages`` stand in for what it is asked.

    The quota is that of the watcher's own control group: the job's, unless it was entered while it ran elsewhere.
    """

    def __init__(
        self,
        gpus: GpuLooks | None = None,
        quota: Callable[[], tuple[int, int] | None] = run_queue.quota_periods,
        hot: Callable[[], Mapping[str, float]] = seconds_of_heat,
        packages: Callable[[float], EnergyCount] = read_packages,
    ) -> None:
        self._gpus = gpus or GpuLooks()
        self._read_quota = quota
        self._read_heat = hot
        self._quota, self._heat = quota(), hot()
        self._read_packages = packages
        self._energy = self._read_energy(0.0)
        """As it was read last."""

    def sample_machine(
        self,
        node: int,
        seconds: float,
        activity: Activity,
        cores: float | None,
        ours: Callable[[int], bool],
    ) -> MachineState:
        """The last ``seconds`` of this machine, as node ``node``; ``cores``: what strangers used.

        ``ours`` tells the job's processes by their numbers.
        """
        quota = self._read_quota()
        heat = self._read_heat()
        throttled = None
        if quota is not None and self._quota is not None:
            used_up, periods = np.subtract(quota, self._quota).tolist()
            throttled = round(used_up / periods, 4) if periods > 0 else 0.0
        known = heat.keys() & self._heat.keys()
        hottest = max((heat[core] - self._heat[core] for core in known), default=None)
        self._quota = quota
        self._heat = heat
        self._gpus.sample_gpus(ours)
        energy = self._read_energy(self._energy["packages"].seconds + seconds)
        watts: dict[EnergyPart, float] = {}
        for part, count in energy.items():
            before = self._energy[part]
            joules = subtract_energy(count, before)
            if joules is not None and count.seconds > before.seconds:
                watts[part] = round(joules / (count.seconds - before.seconds), 2)
        self._energy = energy
        gpus = self._gpus.list_states()
        self._gpus.reset_counts()
        return MachineState(
            node=node,
            others_cores=None if cores is None else round(cores, 3),
            steal=activity.steal,
            disk_bytes=activity.disk_bytes,
            throttled=throttled,
            heat=None if hottest is None or seconds <= 0 else round(hottest / seconds, 4),
            gpus=gpus,
            watts=watts,
        )

    def _read_energy(self, seconds: float) -> dict[EnergyPart, EnergyCount]:
        """What was counted by now, which is ``seconds`` by a clock of ours."""
        return {
            "packages": self._read_packages(seconds),
            "gpus": self._gpus.read_energy(seconds),
        }


def most_telling(
    states: Iterable[MachineState], late: Collection[int | None]
) -> tuple[MachineState, ...]:
    """Of many machines the 8 to write down: the nodes that are ``late`` first, then those that others use most."""
    ranked = sorted(
        states, key=lambda each: (each.node not in late, -(each.others_cores or 0.0), each.node)
    )
    return tuple(ranked[:_MAX_MACHINES])


ErrorCounts = Mapping[tuple[int, int], tuple[int, int]]
"""By node and GPU: uncorrectable errors of memory, and errors of NVLinks."""


def error_counts(states: Iterable[MachineState]) -> dict[tuple[int, int], tuple[int, int]]:
    """As the drivers have counted by now."""
    return {
        (state.node, gpu.index): (gpu.memory_errors or 0, gpu.link_errors or 0)
        for state in states
        for gpu in state.gpus
    }


def slow_parts(state: MachineState, before: ErrorCounts | None = None) -> list[str]:
    """Parts of a machine that are slow or fail, whatever the job does, in words; ``before``: errors at the start."""
    known = slowed_gpus(state.gpus)
    if (state.heat or 0.0) > _MIN_SHARE:
        known.append(f"its processor is slowed by heat {state.heat:.0%} of the time")
    if (state.steal or 0.0) > _MIN_SHARE:
        known.append(f"its host takes {state.steal:.0%} of the CPU time (steal)")
    for (node, gpu), now in error_counts((state,)).items():
        old = (before or {}).get((node, gpu), now)
        if now[0] > old[0]:
            known.append(f"GPU {gpu} has {now[0] - old[0]:,} new uncorrectable errors of memory")
        if now[1] > old[1]:
            known.append(f"the NVLinks of GPU {gpu} have {now[1] - old[1]:,} new errors")
    return known


def explain_lateness(state: MachineState, before: ErrorCounts | None = None) -> str:
    """What of a machine's facts may make its ranks late, in words; empty if nothing is known to."""
    known = [*slow_parts(state, before), *shared_gpus(state.gpus)]
    if (state.throttled or 0.0) > _MIN_SHARE:
        known.append(f"its quota of CPU time is used up {state.throttled:.0%} of the time")
    if (state.others_cores or 0.0) > _MIN_CORES:
        known.append(f"other programs use {state.others_cores:.1f} cores")
    return join_names(known)
