"""What a forecast means for whoever asked: what limits the step next, and where more of the same stops to pay.

Also what the changes do to training itself, which no time tells. Reads forecasts and makes more of them; writes no
text but those sentences about training.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from stash.base.errors import UserError
from stash.derive.predict.forecast.breakdown import Forecast
from stash.derive.predict.whatif.base import Base
from stash.derive.predict.whatif.changes import MOST_NODES, OPTIONS, Alteration
from stash.derive.predict.whatif.forecasting import lost, what_if
from stash.derive.stalls.breakdown import SMALL_SHARE, Stall

WORTH = 0.05
"""Of samples per second: a doubling that brings less does not pay."""
WORTH_OF_DEVICES = 0.5
"""The same of twice the devices, which would double the speed if nothing were lost."""
_DOUBLINGS = 12
_MOST = {"nodes": MOST_NODES, "gpus": 16, "cpus": 1024, "workers": 128, "cache": 1.0, "batch": 65_536,
         "accumulate": 1024, "compress": 1024.0}  # fmt: skip
_SCALABLE = ("network", "nodes", "gpus", "cpus", "workers", "cache", "disk", "memory", "batch", "compress",
             "accumulate")  # fmt: skip


@dataclass(frozen=True)
class Diminishing:
    """Where twice as much of something stops to pay."""

    option: str
    value: float
    """Doubled from here on it brings less than ``gain``."""
    gain: float


def next_bottleneck(told: Forecast) -> Stall:
    """The largest stall of the forecast, or compute where all are small."""
    stalls = [stall for stall in told.breakdown.stalls if stall.name != "compute"]
    largest = max(stalls, key=lambda stall: stall.seconds, default=told.breakdown.stalls[0])
    return largest if largest.share >= SMALL_SHARE else told.breakdown.stalls[0]


def diminishing(base: Base, wanted: Alteration) -> tuple[Diminishing, ...]:
    """For each changed number: from which value on doubling it stops to pay, all other changes as they are.

    Counted in samples per second, from the value asked for downwards or upwards; what never stops is left out.
    """
    found = []
    for name in _SCALABLE:
        value = getattr(wanted, name)
        if value:
            stop = _stops(base, wanted, name, float(value))
            if stop is not None:
                gain = WORTH_OF_DEVICES if name in ("nodes", "gpus") else WORTH
                found.append(Diminishing(OPTIONS[name], stop, gain))
    return tuple(found)


def _stops(base: Base, wanted: Alteration, name: str, value: float) -> float | None:
    worth = WORTH_OF_DEVICES if name in ("nodes", "gpus") else WORTH
    whole = isinstance(getattr(wanted, name), int)
    most = float(_MOST.get(name, float("inf")))
    values = [value * 2.0**power for power in range(-_DOUBLINGS // 2, _DOUBLINGS // 2 + 1)]
    ladder = [max(1.0, round(each)) if whole else each for each in values]
    ladder = sorted({each for each in ladder if each <= most})
    speeds = [(each, _speed(base, wanted, name, int(each) if whole else each)) for each in ladder]
    known = [(each, speed) for each, speed in speeds if speed is not None]
    for (each, speed), (_, faster) in pairwise(known):
        if faster < speed * (1 + worth):
            return each
    return None


def _speed(base: Base, wanted: Alteration, name: str, value: float) -> float | None:
    try:
        told = what_if(base, wanted.model_copy(update={name: value}))
    except UserError:
        return None
    if lost(base, told):
        return None
    return told.breakdown.samples_per_second or 1 / told.breakdown.step_seconds


def effects_on_training(base: Base, wanted: Alteration, told: Forecast) -> Iterator[str]:
    """What the changes do to training itself: one sentence each."""
    before, after = base.breakdown.samples_per_step, told.breakdown.samples_per_step
    if before and after and round(before) != round(after):
        yield (
            f"a step trains {after:,.0f} samples instead of {before:,.0f}, so tune the learning rate again; an epoch "
            "has that many fewer steps"
        )
    if wanted.compress is not None and wanted.compress > 1:
        yield "gradients lose digits on the way, so compare the loss before relying on it"
    if wanted.sharding in ("zero2", "zero3") and wanted.accumulate is not None and wanted.accumulate > 1:
        yield "a sharded model exchanges gradients after every pass, so accumulation saves no exchange"
    if wanted.trained_in == "amp":
        yield "passes compute in 16 bits, so compare the loss, and scale it if gradients underflow"
