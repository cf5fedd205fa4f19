"""What the driver says of a GPU at one moment: clock, power, heat, what holds it down, errors, and who uses it.

The one place that asks NVML such questions. It only reads: clocks, power limits and modes stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, Literal

from stash.core.records.host import PartState
from stash.measure.host.gpus import MAX_LANES
from stash.measure.linux.procfs import read_text

Hold = Literal["power cap", "power brake", "heat", "hardware"]
HOLDS: dict[Hold, int] = {
    "power cap": 0x4,
    "power brake": 0x80,
    "heat": 0x20 | 0x40,
    "hardware": 0x8,
}
"""Bits of nvmlClocksEventReasons (nvml.h): software power cap; the board's power brake; software and hardware thermal
slowdown; hardware slowdown of any kind."""
_SM, _GPU_SENSOR = 1, 0
_UNCORRECTED, _VOLATILE = 1, 0
_LINK_COUNTERS = (0, 1, 2, 3)
"""nvmlNvLinkErrorCounter: replays, recoveries, checksums of flits and of data."""

Ask = Callable[..., Any]


def make_asker(library: Any, handle: Any) -> Ask:
    """Asks about one GPU; ``None`` where it, its driver, the binding or this user's rights have no answer."""

    def ask(question: str, *arguments: Any) -> Any:
        with suppress(
            Exception
        ):  # NVML has a class for each error, and old bindings lack some questions
            return getattr(library, f"nvmlDeviceGet{question}")(handle, *arguments)
        return None

    return ask


def read_gpu(ask: Ask, device: str = "") -> PartState:
    """Look at it once: all but errors and users."""
    clock, highest = ask("ClockInfo", _SM), ask("MaxClockInfo", _SM)
    reasons = ask("CurrentClocksEventReasons")
    if reasons is None:  # its name before driver 535
        reasons = ask("CurrentClocksThrottleReasons")
    watts, limit = ask("PowerUsage"), ask("EnforcedPowerLimit")
    return PartState(
        device=device,
        megahertz=clock,
        clock=clock / highest if clock and highest else None,
        held_by=None
        if reasons is None
        else tuple(name for name, bits in HOLDS.items() if reasons & bits),
        watts=None if watts is None else watts / 1e3,
        watts_limit=None if limit is None else limit / 1e3,
        celsius=ask("Temperature", _GPU_SENSOR),
    )


def read_errors(ask: Ask) -> dict[str, Any]:
    """Its counters of errors, as fields of a state."""
    rows = ask("RemappedRows")  # corrected, uncorrectable, pending, failed: from Ampere on
    pending = ask("RetiredPagesPendingStatus")
    dues = [
        bool(due)
        for due in (pending, None if rows is None else rows[2] or rows[3])
        if due is not None
    ]
    lanes = [lane for lane in range(MAX_LANES) if ask("NvLinkState", lane)]
    counts = [ask("NvLinkErrorCounter", lane, kind) for lane in lanes for kind in _LINK_COUNTERS]
    known = [count for count in counts if count is not None]
    return {
        "memory_errors": ask("TotalEccErrors", _UNCORRECTED, _VOLATILE),
        "repair_due": any(dues) if dues else None,
        "link_errors": sum(known) if known else None,
    }


def users_of(ask: Ask) -> tuple[str, ...]:
    """Processes that compute on it, as far as the driver tells."""
    # drivers before 510 know the question by its older form only
    running = ask("ComputeRunningProcesses") or ask("ComputeRunningProcesses_v2") or ()
    pids = [each.pid for each in running]
    return tuple(
        f"{read_text(Path(f'/proc/{pid}/comm')) or 'a process out of sight'} ({pid})"
        for pid in pids
    )


def state_of(looks: Sequence[PartState], ask: Ask, users: Sequence[str] = ()) -> PartState:
    """All looks at one GPU while it was busy, one at least, together; with its errors and users."""

    def known(name: str) -> list[float]:
        return [value for each in looks if (value := getattr(each, name)) is not None]

    typical = {name: median(known(name)) for name in ("clock", "megahertz", "watts") if known(name)}
    seen = [each.held_by for each in looks if each.held_by is not None]
    held = tuple(hold for hold in HOLDS if any(hold in each for each in seen)) if seen else None
    hottest = max(known("celsius"), default=None)
    more = {
        **typical,
        "held_by": held,
        "celsius": hottest,
        "users": tuple(users),
        **read_errors(ask),
    }
    return looks[-1].model_copy(update=more)
