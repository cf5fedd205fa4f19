"""What a forecast means for whoever asked: what limits the step next, where more of the same stops to pay, what fits.

Also what the changes do to training itself, which no time tells. Reads forecasts and makes more of them; writes no
text but those sentences about training.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from stash.base.errors import UserError
from stash.derive.predict.answers.memory import Footprint, ModelState, constant_bytes, footprint
from stash.derive.predict.exchange.traffic import shards_itself
from stash.derive.predict.forecast.breakdown import Forecast, StallDraws
from stash.derive.predict.recorded import peak_bytes
from stash.derive.predict.whatif.changes import MOST_NODES, OPTIONS, Alteration, stage_of
from stash.derive.predict.whatif.forecasting import AS_IT_IS, Base, what_if
from stash.derive.stalls.breakdown import SMALL_SHARE, Missing, Stall

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


@dataclass(frozen=True)
class Fit:
    """A device's memory: what a step needs of it, and the batch that would just fit."""

    needed_bytes: float
    memory_bytes: float | None
    largest_batch: int | None
    fits: bool | None


def lost(base: Base, told: Forecast | StallDraws) -> tuple[Missing, ...]:
    """Stalls of the target that nobody can predict, other than those which the profile itself could not tell."""
    never_known = {item.name for item in base.breakdown.skipped if item.possible}
    return tuple(item for item in told.unknown if item.name not in never_known or _new(base, item))


def _new(base: Base, item: Missing) -> bool:
    return item.why not in {known.why for known in base.breakdown.skipped}


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


def memory_fit(base: Base, wanted: Alteration, told: Forecast) -> Fit | None:
    """What the step needs of a device's memory; ``None`` where the profile holds no peak, or on CPUs."""
    line = job_footprint(base, wanted, told.target.ranks)
    if line is None or base.passes is None:
        return None
    needed = line.at(wanted.batch or base.passes.batch)
    memory = told.target.device_memory_bytes
    if memory is None:
        return Fit(needed, None, None, None)
    return Fit(needed, memory.value, line.largest_batch(memory.value), line.fits(needed, memory.value))


def job_footprint(base: Base, wanted: Alteration = AS_IT_IS, ranks: int | None = None) -> Footprint | None:
    """What a batch needs on one of so many ranks, by default as many as were profiled.

    ``None`` where the profile holds no peak, on CPUs, and of a job that shards its model itself.
    """
    ranks = base.target.ranks if ranks is None else ranks
    work, peak = base.profile.workload, peak_bytes(base.profile)
    if peak is None or base.passes is None or work.parameter_bytes is None or shards_itself(work):
        return None
    state = ModelState(work.parameter_bytes, work.optimizer_bytes or 0, max(work.bucket_bytes, default=0))
    view = bool(work.bucket_view)
    now = constant_bytes(state, buckets=base.target.ranks > 1 and not view)
    there = constant_bytes(
        state,
        buckets=ranks > 1 and not (view if wanted.bucket_view is None else wanted.bucket_view),
        stage=stage_of(wanted) if ranks > 1 else None,
        ranks=ranks,
    )
    return footprint(peak, base.passes.batch, now, there)


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
