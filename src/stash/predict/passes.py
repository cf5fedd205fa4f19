"""The compute of a forecast, and the profile that it starts from."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stash.analysis.breakdown import Breakdown
from stash.analysis.step_times import count_readers
from stash.catalog.offers import Catalog
from stash.catalog.reference import model_key
from stash.core.errors import UserError
from stash.core.records.profile import Profile
from stash.core.units import format_count
from stash.predict.changes import Dtype, named_gpu
from stash.predict.cluster import Target
from stash.predict.compute_ratios import (
    LAUNCH_SECONDS,
    SAME_CORES,
    batch_exponent,
    no_faster_than_launches,
    precision_ratio,
    time_ratio,
    waiting_device_exponent,
    waiting_device_ratio,
)
from stash.predict.draws import Array, Draws, Quantity, Used, measured_quantity
from stash.predict.exchange_stalls import ExchangeModel
from stash.predict.forecast import PredictedStall
from stash.predict.gpu_scale import mix_of
from stash.predict.loading import Loading, LoadingCorrection
from stash.predict.pipeline import Work, widen_work
from stash.predict.precision import is_bfloat16, training_precision


def profile_command(profile: Profile) -> str:
    """What profiles this job again, as it was typed: a launcher's command stands behind ``--``."""
    words = profile.workload.command
    whole = words[:1] and not (words[0] == "-m" or words[0].endswith(".py"))
    return shlex.join(("stash", "profile", *(("--",) if whole else ()), *words))


def recording_hint(profile: Profile) -> str:
    """The end of a sentence about a fact that ``profile`` lacks."""
    return f"`{profile_command(profile)}` records it"


# Compute

_TENSOR_CORES = frozenset(
    {"Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell", "CDNA2", "CDNA3", "CDNA4"}
)
"""Architectures that have them."""
_WITHOUT_BFLOAT16 = frozenset({"Kepler", "Maxwell", "Pascal", "Volta", "Turing"})
"""Those that do not compute in it (CUDA C++ Programming Guide: compute capability 8.0 and more do)."""
_LARGE_CHANGE = 4.0
"""Times the batch: published speeds at two batches seldom lie farther apart."""


@dataclass(frozen=True, eq=False)
class ComputeScale:
    """How many times as long the passes of one batch take, ``[draws]``, and why."""

    factor: Array
    facts: tuple[Used, ...] = ()
    beyond: tuple[str, ...] = ()

    @cached_property
    def mean(self) -> float:
        return float(np.mean(self.factor))


@dataclass(frozen=True)
class Passes:
    """What a rank does in a step."""

    batch: int
    """Samples of one forward and backward pass; ranks that share a replica of the model have the same."""
    accumulated: int
    """Such passes of a step."""
    launched: float | None = None
    """Of its compute, the share that the host takes to launch the kernels; ``None`` where they were not counted."""

    @property
    def samples(self) -> int:
        return self.batch * self.accumulated


def passes_of(
    profile: Profile, breakdown: Breakdown, batch: int | None = None, accumulate: int | None = None
) -> Passes | None:
    """Of the profiled job, or with another batch or accumulation; ``None`` if its samples were not counted."""
    accumulated = max([1, *(loader.batches_per_step for loader in profile.workload.loaders)])
    samples = breakdown.samples_per_step
    if batch is None and samples is not None:
        batch = max(1, round(samples / count_readers(profile) / accumulated))
    return (
        None
        if batch is None
        else Passes(batch, accumulate or accumulated, _launch_share(profile, breakdown))
    )


def _launch_share(profile: Profile, breakdown: Breakdown) -> float | None:
    compute, calls = (
        breakdown.stall("compute"),
        sum(each.calls for each in profile.workload.operators),
    )
    if compute is None or compute.seconds <= 0 or not calls:
        return None
    return calls * LAUNCH_SECONDS / compute.seconds


def _compute_scale(
    base: Base, target: Target, after: Passes | None, dtype: Dtype | None, gpu: str | None
) -> ComputeScale:
    profile, measured, before = base.profile, base.target, base.passes
    draws = base.draws
    factor, facts, beyond = np.ones(draws.count), [], []
    waits, filled = base.breakdown.waits_for_host, False
    if before is not None and after is not None and after.batch != before.batch:
        ratio = after.batch / before.batch
        exponent, filled = _batch_exponent(base, before, ratio), ratio > 1
        factor = factor * ratio ** draws.draw("batch exponent", exponent)
        facts.append(
            Used(about="growth with the batch, as a power", unit="count", quantity=exponent)
        )
        if not 1 / _LARGE_CHANGE <= ratio <= _LARGE_CHANGE:
            beyond.append(
                f"the batch changes {max(ratio, 1 / ratio):.3g} times; published speeds change 4 times"
            )
    if target.device != measured.device:
        elsewhere = _other_gpu_scale(base, target, dtype, gpu, float(np.mean(factor)), filled)
        factor = factor * elsewhere.factor
        facts += elsewhere.facts
        beyond += elsewhere.beyond
    elif waits and not target.has_same_machines(measured):
        quantity = waiting_device_ratio(Quantity(value=1.0, origin="given", source="the same GPU"))
        factor = factor * draws.draw("cores that launch kernels", quantity)
        facts.append(
            Used(
                about="seconds on other cores per second on these", unit="count", quantity=quantity
            )
        )
    if target.device_share != measured.device_share:
        raise UserError(
            f"a device there is {target.device_share:.2g} of one {target.device}, and {measured.device_share:.2g} of "
            f"one {measured.device} was profiled; how fast slices of GPUs train is not published: profile there"
        )
    if dtype is not None and dtype != training_precision(profile.workload):
        quantity = _precision(base, target, dtype)
        quantity = waiting_device_ratio(quantity, SAME_CORES, filled) if waits else quantity
        factor = factor * draws.draw("mixed precision", quantity)
        facts.append(
            Used(about=f"seconds with {dtype} per second now", unit="count", quantity=quantity)
        )
    return ComputeScale(factor, tuple(facts), tuple(beyond))


def _other_gpu_scale(
    base: Base, target: Target, dtype: Dtype | None, gpu: str | None, longer: float, filled: bool
) -> ComputeScale:
    """Of the device alone; a pass of the batch asked for takes ``longer`` on the one that was profiled.

    ``gpu`` is what the device was asked for as, if it was by itself.
    """
    work, before, known = base.profile.workload, base.passes, base.catalog()
    first, second = known.gpu(base.target.device or ""), named_gpu(target.device or "", known)
    model, precision = model_key(work.name), training_precision(work)
    mix = mix_of(work, precision)
    if dtype != "fp32" and second.architecture in _WITHOUT_BFLOAT16 and is_bfloat16(work):
        raise UserError(
            f"{second.name} does not compute in bfloat16, as the job does; profile it in float16"
        )
    quantity = time_ratio(
        first, second, model, None if before is None else before.batch, precision, mix
    )
    if quantity is None:
        raise UserError(
            f"nothing is known of the speed of {second.name} beside {first.name}; profile there"
        )
    if base.breakdown.waits_for_host:
        quantity = waiting_device_ratio(quantity, filled=filled)
    else:
        launched = None if before is None else before.launched
        if (
            launched is not None
        ):  # as many kernels, whatever the batch: of a longer pass a smaller part
            launched = min(1.0, launched) / longer
        quantity = no_faster_than_launches(quantity, launched)
    beyond = [
        f"the rate of {each.name}'s tensor cores is in no table: data sheets' ratios count its others only"
        for each in (first, second)
        if each.architecture in _TENSOR_CORES and each.tensor_fp16_flops_per_second is None
    ]
    if gpu is not None and gpu.lower() == second.model.lower() != second.name.lower():
        beyond.append(f"{second.model} is made in several variants: {second.name} is taken")
    about = f"seconds on {second.model} per second on {first.model}"
    fact = Used(about=about, unit="count", quantity=quantity)
    drawn = base.draws.draw(f"speed of {second.name}", quantity)
    return ComputeScale(drawn, (fact,), tuple(beyond))


def _batch_exponent(base: Base, before: Passes, ratio: float) -> Quantity:
    compute = base.breakdown.stall("compute")
    if base.target.device is None or compute is None or compute.seconds <= 0:
        source = "a CPU is full with any batch: an assumption"
        return Quantity(value=1.0, low=0.9, high=1.1, origin="data sheet", source=source)
    exponent = batch_exponent(compute.seconds / before.accumulated, ratio)
    if base.breakdown.waits_for_host:
        return waiting_device_exponent(exponent, larger=ratio > 1)
    return exponent


def _precision(base: Base, target: Target, dtype: Dtype) -> Quantity:
    if target.device is None:
        raise UserError(
            "--dtype: no published figures tell what it changes on CPUs; profile the job with it instead"
        )
    gpu = named_gpu(target.device, base.catalog())
    work = base.profile.workload
    ratio = precision_ratio(gpu, dtype, mix_of(work, "fp32"))
    if ratio is None:
        raise UserError(f"--dtype: {gpu.model} is no faster in 16 bits by its data sheet")
    return ratio


# The profile every forecast starts from


@dataclass(frozen=True, eq=False)
class Base:
    """A profile read once: whatever every forecast from it starts with."""

    profile: Profile
    breakdown: Breakdown
    target: Target
    draws: Draws
    passes: Passes | None
    exchange: ExchangeModel
    loading: Loading | None
    held: LoadingCorrection | None
    catalog: Callable[[], Catalog]
    clusters: Callable[[str], Target]
    """Machines by the file that describes them."""

    @property
    def source(self) -> str:
        return f"the profile of {self.profile.created[:10]}"

    @cached_property
    def measured_facts(self) -> Mapping[str, Used]:
        """Every measured stall, as a fact that forecasts rest on."""
        found = {}
        for stall in self.breakdown.stalls:
            fact = measured_quantity(stall.time, self.profile.created[:10], self.source)
            found[stall.name] = Used(about=f"{stall.name} as it was", unit="seconds", quantity=fact)
        return found

    @cached_property
    def _stalls(self) -> Mapping[str, Array]:
        drawn = {
            each.name: self.draws.draw_mean(f"measured {each.name}", each.time)
            for each in self.breakdown.stalls
        }
        for seconds in drawn.values():
            seconds.setflags(write=False)
        return drawn

    def stall(self, name: str) -> Array | None:
        """A measured stall, ``[draws]``, not to be written to."""
        return self._stalls.get(name)

    @cached_property
    def work_elsewhere(self) -> Work | None:
        """What samples cost with other workers or cores than those measured; ``None`` if it is unknown."""
        return None if self.loading is None else widen_work(self.loading.work, self.draws)

    @cached_property
    def _scales(self) -> dict[tuple[object, ...], ComputeScale]:
        return {}

    def compute_scale(
        self,
        target: Target,
        after: Passes | None,
        dtype: Dtype | None = None,
        gpu: str | None = None,
    ) -> ComputeScale:
        """Of one pass on the target over one as measured; raises UserError where nothing is known to tell it from.

        Asked of each device, batch and precision once.
        """
        batch = None if after is None else after.batch
        key = (target.device, target.device_share, gpu, dtype, batch)
        if key not in self._scales:
            self._scales[key] = _compute_scale(self, target, after, dtype, gpu)
        return self._scales[key]


def measured_stalls(base: Base, names: Iterable[str]) -> list[PredictedStall]:
    """Those of these stalls that were measured, as they were: no model has a part in them."""
    parts = []
    for name in names:
        seconds = base.stall(name)
        if seconds is not None:
            parts.append(PredictedStall(name, seconds, "measured", (base.measured_facts[name],)))
    return parts


def why_replicas_split(base: Base, nodes: int, devices: int) -> str | None:
    """Why so many nodes of so many devices hold no whole replicas of a model that ranks share; else ``None``.

    What ranks of a replica exchange was seen where they lay: within a node, or over nodes of as many devices.
    """
    share, was = round(1 / count_readers(base.profile, 1)), base.target.devices
    if (
        devices % share == 0
        if was % share == 0
        else devices == was and nodes * devices % share == 0
    ):
        return None
    there = (
        f"nodes of {devices}" if devices != was else f"{format_count(nodes, 'node')} of {devices}"
    )
    return (
        f"{share} ranks share a replica of the model, on nodes of {format_count(was, 'device')}; what they would "
        f"exchange "
        f"on {there} is not in the profile: profile it there"
    )
