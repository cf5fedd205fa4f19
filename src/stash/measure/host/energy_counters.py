"""Energy counters of this machine's processors and GPUs, read and subtracted; nothing is switched on or reset.

Processors: Intel's RAPL, which AMD's have too, as Linux shows it (Documentation/power/powercap). It counts whole
packages with all their cores, whoever uses them; of the machine's memory, disks, fans and power supplies nothing. GPUs:
NVML's total energy, whole boards, from Volta on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from stash.core.records.circumstances import EnergyPart, EnergyUse
from stash.measure.host.gpu_readings import Ask
from stash.measure.linux.procfs import list_entries, read_number, read_text

_ROOT, _ZONES = Path("/"), "sys/class/powercap"
_MOST_WATTS = 1000.0
"""Of one package: a counter that may have wrapped twice at that power says nothing."""


@dataclass(frozen=True)
class EnergyCount:
    """What counters of one kind showed at one moment."""

    seconds: float
    """By the reader's clock."""
    joules: Mapping[str, float] = field(default_factory=dict)
    """By part, since an unknown moment; empty where nothing is known."""
    wraps_at: Mapping[str, float] = field(default_factory=dict)
    """Joules at which a part's counter begins at zero again."""
    unknown: str = ""
    """Why nothing is known."""


def read_packages(seconds: float, root: Path = _ROOT) -> EnergyCount:
    """Every processor package, or none of them: a part of them would pass for all."""
    # "intel-rapl:0" is a package, "intel-rapl:0:0" a part of it, "intel-rapl-mmio:0" the same package once more
    zones = {
        name: zone
        for zone in list_entries(root / _ZONES)
        if zone.name.startswith("intel-rapl:")
        and (name := read_text(zone / "name") or "").startswith("package")
    }
    if not zones:
        reason = "Linux shows no energy counters of processors here (/sys/class/powercap)"
        return EnergyCount(seconds, unknown=f"{reason}; few virtual machines and containers do")
    joules, wraps_at = {}, {}
    for name, zone in zones.items():
        count, most = (read_number(zone / file) for file in ("energy_uj", "max_energy_range_uj"))
        if count is None:
            reason = f"the energy of {name} cannot be read, which Linux allows only root"
            remedy = "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj"
            return EnergyCount(
                seconds, unknown=f"{reason}; `{remedy}` allows it until the next boot"
            )
        joules[name] = count * 1e-6
        if most is not None:
            wraps_at[name] = most * 1e-6
    return EnergyCount(seconds, joules, wraps_at)


def read_gpus(asks: Mapping[int, Ask], seconds: float) -> EnergyCount:
    """The GPUs of these numbers, all or none; they do not wrap, and begin at zero when the driver is loaded."""
    millijoules = {index: ask("TotalEnergyConsumption") for index, ask in asks.items()}
    if not asks:
        return EnergyCount(seconds, unknown="no process of the job was seen on a GPU")
    if None in millijoules.values():
        reason = "NVML does not count the energy of these GPUs; it does from Volta on"
        return EnergyCount(seconds, unknown=reason)
    return EnergyCount(seconds, {f"gpu-{index}": mj * 1e-3 for index, mj in millijoules.items()})


def subtract_energy(after: EnergyCount, before: EnergyCount) -> float | None:
    """Joules of all parts between two readings; ``None`` where that cannot be known."""
    if not after.joules or after.joules.keys() != before.joules.keys():
        return None
    spent = 0.0
    for part, end in after.joules.items():
        change, wraps_at = end - before.joules[part], after.wraps_at.get(part)
        if wraps_at is not None:
            if (after.seconds - before.seconds) * _MOST_WATTS > wraps_at:
                return None
            change += wraps_at if change < 0 else 0.0
        if change < 0:
            return None
        spent += change
    return spent


# What the blocks of a rung drew: the launcher reads counters ten times a second while that rung runs, and a block's
# share of each reading's joules is that of its seconds.

_LEAST_SECONDS = 0.1
"""Of a block: of shorter ones too much is their neighbours'."""
_LEAST_SHARE = 0.9
"""Of a block's seconds, those between two readings; the others are taken to be like them."""
_DIGITS = 6
Counts = Mapping[EnergyPart, EnergyCount]


def sum_energy(
    readings: Sequence[Counts],
    blocks: Sequence[tuple[float, float]],
    rung: str,
    parts: Sequence[EnergyPart],
    dollars_per_kwh: float | None = None,
) -> EnergyUse:
    """What ``blocks`` of a rung (when each began and ended) drew, of these parts of the machine."""
    spans = [
        (end - begun, {part: _joules_between(readings, part, begun, end) for part in parts})
        for begun, end in blocks
        if end - begun >= _LEAST_SECONDS
    ]
    known = [part for part in parts if any(span[part] is not None for _, span in spans)]
    whole = [
        (seconds, [span[part] for part in known])
        for seconds, span in spans
        if known and all(span[part] is not None for part in known)
    ]
    columns = zip(*(joules for _, joules in whole), strict=True)
    found = {part: _round(column) for part, column in zip(known, columns, strict=False)}
    last = readings[-1] if readings else {}
    short = "no block of the highest rung was long enough, with readings at both of its ends"
    return EnergyUse(
        rung=rung,
        seconds=_round(seconds for seconds, _ in whole),
        joules=found,
        counts={part: len(last[part].joules) for part in found},
        unknown={
            part: (last[part].unknown if part in last else "") or short
            for part in parts
            if part not in found
        },
        dollars_per_kwh=dollars_per_kwh,
    )


def _joules_between(
    readings: Sequence[Counts], part: EnergyPart, begun: float, end: float
) -> float | None:
    first = bisect_right(readings, begun, key=lambda counts: counts[part].seconds)
    last = bisect_left(readings, end, key=lambda counts: counts[part].seconds)
    spent = covered = 0.0
    for before, after in pairwise(readings[max(0, first - 1) : last + 1]):
        start, stop = before[part].seconds, after[part].seconds
        joules = subtract_energy(after[part], before[part])
        if joules is None:
            return None
        overlap = min(stop, end) - max(start, begun)
        spent += joules * overlap / (stop - start)
        covered += overlap
    seconds = end - begun
    return spent * seconds / covered if covered >= _LEAST_SHARE * seconds else None


def _round(values: Iterable[float | None]) -> tuple[float, ...]:
    """With as many digits as mean something."""
    return tuple(float(f"{value:.{_DIGITS}g}") for value in values if value is not None)
