"""What the driver says of a GPU at one moment: clock, power, heat, what holds it down, errors, and who uses it.

The one place that asks NVML such questions. It only reads: clocks, power limits and modes stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

from stash.core.records.host import PartState
from stash.measure.host.gpus import MAX_LANES
from stash.measure.linux.procfs import text

Hold = Literal["power cap", "power brake", "heat", "hardware"]
HOLDS: dict[Hold, int] = {"power cap": 0x4, "power brake": 0x80, "heat": 0x20 | 0x40, "hardware": 0x8}
"""Bits of nvmlClocksEventReasons (nvml.h): software power cap; the board's power brake; software and hardware thermal
slowdown; hardware slowdown of any kind."""
_SM, _GPU_SENSOR = 1, 0
_UNCORRECTED, _VOLATILE = 1, 0
_RETIREMENTS = (0, 1)
"""NVML_PAGE_RETIREMENT_CAUSE: corrected errors twice, an uncorrectable one."""
_LINK_COUNTERS = (0, 1, 2, 3)
"""nvmlNvLinkErrorCounter: replays, recoveries, checksums of flits and of data."""

Ask = Callable[..., Any]


class GpuReading(NamedTuple):
    """One look; ``None`` where the driver, or this user's rights, have no answer."""

    megahertz: int | None
    clock: float | None
    """Of the highest one."""
    holds: frozenset[Hold] | None
    watts: float | None
    watts_limit: float | None
    celsius: int | None


class GpuErrors(NamedTuple):
    """Running totals since the driver was loaded, or of the GPU's life."""

    memory: int | None
    """Uncorrectable ones."""
    retired: int | None
    repair_due: bool | None
    links: int | None
    pcie_replays: int | None


def asker(library: Any, handle: Any) -> Ask:
    """Asks about one GPU; ``None`` where it, its driver or the binding has no answer."""

    def ask(question: str, *arguments: Any) -> Any:
        with suppress(Exception):  # NVML has a class for each error, and old bindings lack some questions
            return getattr(library, question)(handle, *arguments)
        return None

    return ask


def read_gpu(ask: Ask) -> GpuReading:
    """Look at it once."""
    clock, highest = ask("nvmlDeviceGetClockInfo", _SM), ask("nvmlDeviceGetMaxClockInfo", _SM)
    reasons = ask("nvmlDeviceGetCurrentClocksEventReasons")
    if reasons is None:  # its name before driver 535
        reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    watts, limit = ask("nvmlDeviceGetPowerUsage"), ask("nvmlDeviceGetEnforcedPowerLimit")
    return GpuReading(
        megahertz=clock,
        clock=clock / highest if clock and highest else None,
        holds=None if reasons is None else frozenset(name for name, bits in HOLDS.items() if reasons & bits),
        watts=None if watts is None else watts / 1e3,
        watts_limit=None if limit is None else limit / 1e3,
        celsius=ask("nvmlDeviceGetTemperature", _GPU_SENSOR),
    )


def read_errors(ask: Ask) -> GpuErrors:
    """Its counters of errors."""
    pages = [ask("nvmlDeviceGetRetiredPages", cause) for cause in _RETIREMENTS]
    rows = ask("nvmlDeviceGetRemappedRows")  # corrected, uncorrectable, pending, failed: from Ampere on
    counts = [ask("nvmlDeviceGetNvLinkErrorCounter", lane, kind) for lane in _lanes(ask) for kind in _LINK_COUNTERS]
    known = [len(each) for each in pages if each is not None] + ([] if rows is None else [rows[0] + rows[1]])
    pending = ask("nvmlDeviceGetRetiredPagesPendingStatus")
    dues = [*([] if pending is None else [bool(pending)]), *([] if rows is None else [bool(rows[2] or rows[3])])]
    return GpuErrors(
        memory=ask("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _VOLATILE),
        retired=sum(known) if known else None,
        repair_due=any(dues) if dues else None,
        links=sum(count for count in counts if count is not None) if any(c is not None for c in counts) else None,
        pcie_replays=ask("nvmlDeviceGetPcieReplayCounter"),
    )


def _lanes(ask: Ask) -> Sequence[int]:
    return [lane for lane in range(MAX_LANES) if ask("nvmlDeviceGetNvLinkState", lane)]


def users_of(ask: Ask, own: Callable[[int], bool]) -> tuple[str, ...] | None:
    """Processes of others that compute on it; ``None`` where the driver does not tell."""
    running = ask("nvmlDeviceGetComputeRunningProcesses")
    if running is None:
        return None
    others = [each.pid for each in running if not own(each.pid)]
    return tuple(f"{text(Path(f'/proc/{pid}/comm')) or 'a process out of sight'} ({pid})" for pid in others)


def state_of(device: str, readings: Sequence[GpuReading], errors: GpuErrors, users: Sequence[str]) -> PartState:
    """All looks at one GPU while it was busy, together."""

    def typical(name: str) -> float | None:
        known = [value for each in readings if (value := getattr(each, name)) is not None]
        return float(median(known)) if known else None

    held = [hold for hold in HOLDS if any(hold in each.holds for each in readings if each.holds is not None)]
    return PartState(
        device=device, clock=typical("clock"), megahertz=typical("megahertz"), watts=typical("watts"),
        watts_limit=typical("watts_limit"), held_by=tuple(held),
        celsius=max((each.celsius for each in readings if each.celsius is not None), default=None),
        memory_errors=errors.memory, retired=errors.retired, repair_due=errors.repair_due,
        link_errors=errors.links, pcie_replays=errors.pcie_replays, users=tuple(users),
    )  # fmt: skip
