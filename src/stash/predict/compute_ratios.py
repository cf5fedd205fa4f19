"""Compute elsewhere: how many times as long a step takes on another GPU, batch or precision; contention of several.

Between GPUs one scale holds every published speed and the data sheets (``gpu_scale``); each interval is what errors
over published speeds show. Knows GPUs and models by name; knows no profile and no target.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from stash.catalog.facts import GpuFacts
from stash.catalog.reference import model_key, node_scaling
from stash.predict.draws import Array, Quantity
from stash.predict.gpu_scale import (
    PRECISION_SPREAD,
    UNCOUNTED,
    GpuCell,
    StepMix,
    peak_flops,
    published_scale,
    sheet_rates,
)
from stash.predict.precision import Precision

LAUNCH_SECONDS = 5e-6
"""Between the starts of two kernels of a running stream: 3.8 to 9.6 µs on a V100 (A. Gray, *Getting Started with CUDA
Graphs*, NVIDIA, 2019). It is the host's work, the same whatever the GPU."""

_AMONG = " among them"

# Another GPU


def is_of_model(source: str) -> bool:
    """Whether a ratio's ``source`` says that speeds of the model itself were published on these GPUs."""
    return _AMONG in source


@lru_cache(maxsize=1024)
def time_ratio(
    first: GpuFacts,
    second: GpuFacts,
    model: str,
    batch: int | None,
    precision: str,
    mix: StepMix = UNCOUNTED,
) -> Quantity | None:
    """Seconds on ``second`` over seconds on ``first``, of compute; ``None`` if nothing is known of one of them.

    From the one scale of all published speeds and what the job's operators say; ``batch`` is the same on both.
    """
    if first.name == second.name:
        return Quantity(value=1.0, origin="given", source="the same GPU")
    if sheet_rates(first, precision) is None or sheet_rates(second, precision) is None:
        return None
    scale, key = published_scale(), model_key(model)
    log_ratio, deviation = scale.ratio(
        GpuCell(key, first, precision, mix), GpuCell(key, second, precision, mix)
    )
    seen = [gpu.model for gpu in (first, second) if scale.has_row(key, gpu.model)]
    what = f"{model} on {' and '.join(seen)}{_AMONG}" if seen else f"none of {model} on these GPUs"
    source = f"one scale of {len(scale.rows)} published speeds, {what}"
    measured = {row.gpu for row in scale.rows}
    unseen = [gpu.name for gpu in (first, second) if gpu.model not in measured]
    if unseen:
        source += f"; {' and '.join(unseen)} by data sheet alone"
    if mix.products is not None:
        source += f"; by its operators {mix.products:.0%} of a step on an A100 is products"
    if mix.strict and (first.tensor_tf32_flops_per_second or second.tensor_tf32_flops_per_second):
        source += ", which stay in float32 (`torch.set_float32_matmul_precision` allows TF32)"
    if batch is not None:
        source += f"; at batch {batch} on both, where some sources took the largest that fits"
    as_of = max(
        (row.as_of for row in scale.rows if row.as_of and row.gpu in (first.model, second.model)),
        default=None,
    )
    return _quantity(log_ratio, _NORMAL * deviation, source, as_of)


_NORMAL = 1.96
"""Half of a 95 % interval in standard deviations."""


def no_faster_than_launches(ratio: Quantity, share: float | None) -> Quantity:
    """The same, but a step never shorter than the host takes to launch its kernels: ``share`` of it as it was.

    A share above 1 was measured faster than ``LAUNCH_SECONDS`` has it, so it is all of the step.
    """
    share = min(share or 0.0, 1.0)
    if share <= (ratio.low or ratio.value):
        return ratio
    ends = {
        name: None if end is None else max(end, share)
        for name, end in (("low", ratio.low), ("high", ratio.high))
    }
    source = f"{ratio.source}; launching its kernels takes {share:.0%} of the step whatever the GPU"
    return ratio.model_copy(update={"value": max(ratio.value, share), **ends, "source": source})


OTHER_CORES, SAME_CORES = 1.33, 1.1
"""By how much another host may launch kernels faster or slower, and the same one other kernels: assumptions."""


def waiting_device_ratio(
    ratio: Quantity, cores: float = OTHER_CORES, filled: bool = False
) -> Quantity:
    """The same of a job whose device was seen to wait for its host: another one waits as long, unless it is too slow.

    How much of the step a device is idle is not known, so that one by ``ratio`` slower may lose all of that, or none:
    the value is in the middle between both. A device that a larger batch has ``filled`` may not wait any more, and a
    faster one save all of its ratio, or nothing.
    """
    low, high = min(1.0, ratio.low or ratio.value), max(1.0, ratio.high or ratio.value)
    middle = math.sqrt(ratio.value if filled else max(1.0, ratio.value))
    low = min(low, 1 / cores) if filled else 1 / cores
    source = (
        f"the device waits for the host, which submits no faster for another; else {ratio.source}"
    )
    return ratio.model_copy(
        update={"value": middle, "low": low, "high": cores * high, "source": source}
    )


def waiting_device_exponent(exponent: Quantity, larger: bool) -> Quantity:
    """The same, γ: another batch takes as long to submit; with a ``larger`` one the device may be too slow."""
    value, high = (exponent.value / 2, exponent.high) if larger else (0.0, 0.1)
    source = f"the device waits for the host, whatever the batch; else {exponent.source}"
    return exponent.model_copy(update={"value": value, "low": 0.0, "high": high, "source": source})


def _quantity(log_ratio: float, spread: float, source: str, as_of: str | None = None) -> Quantity:
    value, low, high = (math.exp(log_ratio + shift) for shift in (0.0, -spread, spread))
    return Quantity(
        value=value, low=low, high=high, origin="data sheet", as_of=as_of, source=source
    )


# Another batch, another precision


FIXED_ROOT, _MOST_FIXED, _STEEPEST = 0.08, 0.20, 1.05
"""Square root of the seconds of a pass that no batch shortens: of eleven published models half lie below, and nearly
all; and the greatest γ of published ones (``python -m bench.predict.gpus``)."""
_FIXED_SHARE, _MOST_FIXED_SHARE = 0.65, 0.80
"""Of the root of a pass at most: no published model's step grows by less in the mean, and few do at any batch."""


def batch_exponent(seconds: float, ratio: float, fixed: float = FIXED_ROOT) -> Quantity:
    """γ in seconds ∝ batchᵞ, of a pass that takes ``seconds`` now, and with ``ratio`` times its batch, other than 1.

    √seconds = fixed + slope · √batch: the shorter a pass is, the less of it grows with its batch, as small kernels do
    not fill a GPU, and some of them are as long for any batch.
    """

    def power(root: float, most: float) -> float:
        still = min(root / math.sqrt(seconds), most)
        return 2 * math.log(still + (1 - still) * math.sqrt(ratio)) / math.log(ratio)

    return Quantity(
        value=power(fixed, _FIXED_SHARE),
        low=power(_MOST_FIXED, _MOST_FIXED_SHARE),
        high=_STEEPEST,
        origin="data sheet",
        as_of="2026-11-30",
        source="published models at several batches, by how long a pass takes (`python -m bench.predict.gpus`)",
    )


def precision_ratio(gpu: GpuFacts, to: Precision, mix: StepMix = UNCOUNTED) -> Quantity | None:
    """Seconds in the precision ``to`` over seconds in the other, on the same GPU, by its data sheet.

    ``None`` for a GPU that is no faster in 16 bits than in 32, or whose sheet has a hole.
    """
    if sheet_rates(gpu, "amp") is None or peak_flops(gpu, "amp") == gpu.fp32_flops_per_second:
        return None
    log_ratio = published_scale().amp_ratio(GpuCell("", gpu, "amp", mix))
    return _quantity(
        log_ratio if to == "amp" else -log_ratio,
        _NORMAL * PRECISION_SPREAD,
        f"{gpu.model}'s rates in both precisions, {gpu.source}",
        gpu.as_of,
    )


# Contention


def crowding(devices: int) -> Quantity:
    """By how much a step takes longer on so many devices than its exchange explains, as a fraction of it on one.

    Where it was not measured: of published models, by how much theirs did (shared hosts and power, input, launching
    kernels, an exchange that is not DistributedDataParallel's). Mean and the ends between which 95 % of them lie.
    """
    jobs = node_scaling()
    low, high = crowding_quantiles(np.array([0.025, 0.975]), devices).tolist()
    return Quantity(
        value=float(crowding_quantiles((np.arange(1000) + 0.5) / 1000, devices).mean()),
        low=low,
        high=high,
        origin="data sheet",
        as_of=max(each.as_of for each in jobs),
        source="; ".join(dict.fromkeys(each.source for each in jobs)),
    )


def crowding_quantiles(uniforms: Array, devices: int, without: str | None = None) -> Array:
    """That fraction at these places of its distribution, between 0 and 1: as it was seen, every model on a machine
    counting alike, but for those of the source ``without``, and each doubling of the devices losing as much. Most
    models lose some per cent and a few a third, which no normal distribution holds; all is shifted by a per cent or
    two so that the mean, by which stalls add up, is what the model in the middle loses."""
    losses, places, above = _losses(without)
    found: Array = (np.interp(uniforms, places, losses) - above) * _doublings(devices)
    return found


def _doublings(devices: int) -> float:
    return max(1.0, math.log2(devices))


@lru_cache(maxsize=8)
def _losses(without: str | None) -> tuple[Array, Array, float]:
    """Published losses of a doubling in ascending order, each one's place between 0 and 1, and their mean less the
    middle one."""
    groups: dict[tuple[str, ...], list[float]] = {}
    for each in node_scaling():
        if each.source != without:
            groups.setdefault((each.source, each.model, each.machine), []).append(
                each.loss / _doublings(each.devices)
            )
    counted = sorted((loss, 1 / len(group)) for group in groups.values() for loss in group)
    losses, counts = np.array(counted).T
    places = (np.cumsum(counts) - counts / 2) / counts.sum()
    even = np.interp((np.arange(1000) + 0.5) / 1000, places, losses)
    return losses, places, float(even.mean() - np.median(even))
