"""The compute of a forecast: what a step's passes take on another device, with other samples, in another precision.

Scales what was measured, by the ratios of ``compute``. Knows which facts of a profile they need, and says what is
missing; the exchange is not compute, and neither is waiting for data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stash.base.errors import UserError
from stash.base.records import Profile
from stash.derive.predict.compute.ratios import batch_exponent, precision_ratio, slice_ratio, time_ratio
from stash.derive.predict.compute.roofline import autocast_ratio, roofline_ratio
from stash.derive.predict.target.cluster import Target
from stash.derive.predict.uncertainty.draws import Array, Draws
from stash.derive.predict.uncertainty.quantity import Quantity, Used
from stash.derive.predict.whatif.changes import Alteration
from stash.derive.predict.whatif.refusing import records
from stash.derive.predict.whatif.retarget import named_gpu
from stash.derive.stalls.breakdown import Breakdown
from stash.keep.catalog import Catalog, GpuFacts
from stash.keep.catalog.speeds import model_key

_LARGE_CHANGE = 4.0
"""Times the batch: published speeds at two batches seldom lie farther apart."""


@dataclass(frozen=True, eq=False)
class ComputeScale:
    """How many times as long the passes of one batch take, ``[draws]``, and why."""

    factor: Array
    facts: tuple[Used, ...] = ()
    beyond: tuple[str, ...] = ()
    changed: bool = False


@dataclass(frozen=True)
class Passes:
    """What a rank does in a step."""

    batch: int
    """Samples of one forward and backward pass."""
    accumulated: int
    """Such passes of a step."""

    @property
    def samples(self) -> int:
        return self.batch * self.accumulated


def passes(profile: Profile, breakdown: Breakdown, wanted: Alteration | None = None) -> Passes | None:
    """Of the profiled job, or with what is ``wanted``; ``None`` if nobody counted its samples."""
    loaders = profile.workload.loaders
    accumulated = max([1, *(loader.batches_per_step for loader in loaders)])
    samples = breakdown.samples_per_step
    batch = None if samples is None else max(1, round(samples / breakdown.world_size / accumulated))
    if wanted is not None:
        batch, accumulated = wanted.batch or batch, wanted.accumulate or accumulated
    return None if batch is None else Passes(batch, accumulated)


def compute_scale(
    profile: Profile,
    measured: Target,
    target: Target,
    wanted: Alteration,
    before: Passes | None,
    after: Passes | None,
    draws: Draws,
    known: Catalog,
) -> ComputeScale:
    """Of one pass on the target over one as measured; raises UserError where nothing is known to tell it from."""
    factor, facts, beyond = np.ones(draws.count), [], []
    precision = "amp" if profile.workload.precision in ("float16", "bfloat16") else "fp32"
    model, name = model_key(profile.workload.name), profile.workload.name
    if before is not None and after is not None and after.batch != before.batch:
        ratio = after.batch / before.batch
        exponent = _exponent(name, measured, known)
        factor = factor * ratio ** draws.of("batch exponent", exponent)
        facts.append(Used(about="growth with the batch, as a power", unit="count", quantity=exponent))
        if not 1 / _LARGE_CHANGE <= ratio <= _LARGE_CHANGE:
            beyond.append(f"the batch changes {max(ratio, 1 / ratio):.3g} times; published speeds change 4 times")
    if target.device != measured.device:
        first, second = known.gpu(measured.device or ""), named_gpu(target.device or "", known)
        batch = None if before is None else before.batch
        if wanted.gpu is not None and wanted.gpu.lower() == second.model.lower() != second.name.lower():
            beyond.append(f"{second.model} is made in several variants: {second.name} is taken")
        quantity = time_ratio(first, second, model, batch, precision, _roofline(profile, first, second))
        if quantity is None:
            raise UserError(f"nothing is known of the speed of {second.name} beside {first.name}; profile there")
        factor = factor * draws.of(f"speed of {second.name}", quantity)
        facts.append(Used(about=f"seconds on {second.model} per second on {first.model}", unit="count",
                          quantity=quantity))  # fmt: skip
    if target.device_share != measured.device_share:
        quantity = slice_ratio(measured.device_share, target.device_share)
        factor = factor * draws.of("slice of a GPU", quantity)
        about = f"seconds on {target.device_share:.2g} of a GPU per second on {measured.device_share:.2g}"
        facts.append(Used(about=about, unit="count", quantity=quantity))
        beyond.append(
            f"each device is {target.device_share:.2g} of one {target.device}: that compute takes longer in "
            "proportion is an assumption, as nobody published how fast slices of GPUs train"
            if target.device_share < 1
            else f"each device that was measured is {measured.device_share:.2g} of one {measured.device}: that a "
            "whole one is faster in proportion is an assumption, as nobody published how fast slices of GPUs train"
        )
    if wanted.trained_in is not None and wanted.trained_in != precision:
        quantity = _precision(profile, target, wanted, known)
        factor = factor * draws.of("mixed precision", quantity)
        facts.append(Used(about=f"seconds with {wanted.trained_in} per second now", unit="count", quantity=quantity))
    return ComputeScale(factor, tuple(facts), tuple(beyond), bool(facts))


def _exponent(name: str, measured: Target, known: Catalog) -> Quantity:
    """On CPUs and on GPUs alike the published ones are of GPUs; a CPU is full with any batch."""
    if measured.device is None:
        return Quantity(
            value=1.0, low=0.9, high=1.1, origin="data sheet", source="a CPU is full with any batch: an assumption"
        )
    return batch_exponent(name, known.gpu(measured.device).model)


def _roofline(profile: Profile, first: GpuFacts, second: GpuFacts) -> float | None:
    return roofline_ratio(profile.workload.operators, first, second)


def _precision(profile: Profile, target: Target, wanted: Alteration, known: Catalog) -> Quantity:
    if target.device is None:
        raise UserError("--precision-of-training: on CPUs nothing was published of it; profile with it instead")
    gpu = named_gpu(target.device, known)
    found = precision_ratio(profile.workload.name, gpu.model, autocast_ratio(profile.workload.operators, gpu))
    if found is None:
        raise UserError(
            f"--precision-of-training: nothing was published of it on {gpu.model}, and the profile holds no "
            f"operators to tell it from; {records(profile)}"
        )
    if wanted.trained_in == "amp":
        return found
    low, high = (None if end is None else 1 / end for end in (found.high, found.low))
    return found.model_copy(update={"value": 1 / found.value, "low": low, "high": high})
