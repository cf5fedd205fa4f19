"""Published pairs of training times, at two batches, precisions or GPUs, and a roofline for each operator.

What an estimate from pairs is worth is told by its errors over models that were left out when they were predicted:
fit and test never share a model. Between GPUs forecasts go by ``gpu_scale``. A roofline takes a call's FLOPs at
the peak its shapes and type can have, or its bytes at the memory's rate, or as long as it takes to launch it:
whichever is longest (Williams, Waterman and Patterson 2009). No device reaches its peaks, so only ratios of two times
are used.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import stdtrit

from stash.catalog.facts import GpuFacts
from stash.catalog.reference import Speed, speeds
from stash.core.records.profile import Operator, Workload

_ALIKE = 4.0
"""Batches that differ by more than this factor are no witness for each other."""
Precision = Literal["fp32", "amp"]
"""As published speeds call it: all in 32 bits, or products and convolutions in 16."""
_HALVES = ("float16", "bfloat16", "half")


class SpeedChange(NamedTuple):
    """One model trained in two ways: what changed of its time."""

    model: str
    gpu: str
    """Of two that are compared the second."""
    log_ratio: float
    source: str
    as_of: str | None


def near(one: int | None, other: int | None) -> bool:
    return one is None or other is None or max(one, other) <= _ALIKE * min(one, other)


def by_model(pairs: Iterable[SpeedChange]) -> float:
    """The mean log ratio over models, each counting once however many batches of it were published."""
    grouped: dict[str, list[float]] = defaultdict(list)
    for pair in pairs:
        grouped[pair.model].append(pair.log_ratio)
    return float(np.mean([np.mean(ratios) for ratios in grouped.values()]))


def arm(errors: Sequence[float]) -> float:
    """Half of a 95 % interval for a new error, of errors around zero: t · rms · √(1 + 1/n); infinite for none."""
    count = len(errors)
    if not count:
        return math.inf
    rms = math.sqrt(sum(error * error for error in errors) / count)
    return float(stdtrit(count, 0.975)) * rms * math.sqrt(1 + 1 / count)


def left_out_errors(known: Sequence[SpeedChange]) -> list[float]:
    """For each model ln(predicted / published), predicted from the other models alone."""
    errors = []
    for model in sorted({pair.model for pair in known}):
        rest = [pair for pair in known if pair.model != model]
        if rest:
            errors.append(by_model(rest) - by_model([pair for pair in known if pair.model == model]))
    return errors


@lru_cache(maxsize=1)
def batch_pairs() -> tuple[SpeedChange, ...]:
    """Of each model, GPU, precision and source at several batches: d ln(step seconds) / d ln(batch), fitted."""
    grouped: dict[tuple[str, str, str, str], list[Speed]] = defaultdict(list)
    for speed in speeds():
        if speed.batch is not None:
            grouped[speed.key, speed.gpu, speed.precision, speed.series].append(speed)
    changes = []
    for (model, gpu, _, series), each in sorted(grouped.items()):
        batches = [math.log(speed.batch or 1) for speed in each]
        if len(set(batches)) > 1:
            seconds = [math.log((speed.batch or 1) / speed.per_second) for speed in each]
            slope = float(np.polyfit(batches, seconds, 1)[0])
            changes.append(SpeedChange(model, gpu, slope, series, each[0].as_of))
    return tuple(changes)


@lru_cache(maxsize=1)
def precision_pairs() -> tuple[SpeedChange, ...]:
    """Of each model, GPU and source in both precisions: ln(seconds a sample with amp / in fp32), nearest batches."""
    grouped: dict[tuple[str, str, str], dict[str, list[Speed]]] = defaultdict(lambda: defaultdict(list))
    for speed in speeds():
        grouped[speed.key, speed.gpu, speed.source][speed.precision].append(speed)
    changes = []
    for (model, gpu, source), by_precision in sorted(grouped.items()):
        for slow in by_precision["fp32"]:
            alike = [fast for fast in by_precision["amp"] if near(fast.batch, slow.batch)]
            if alike:
                fast = min(alike, key=lambda each: abs(math.log((each.batch or 1) / (slow.batch or 1))))
                change = math.log(slow.per_second / fast.per_second)
                changes.append(SpeedChange(model, gpu, change, source, fast.as_of))
    return tuple(changes)


# A roofline of each operator

LAUNCH_SECONDS = 5e-6
"""Between the starts of two kernels of a running stream: 3.8 to 9.6 µs on a V100 (A. Gray, *Getting Started with CUDA
Graphs*, NVIDIA, 2019). It is the host's work, the same whatever the GPU."""
_TENSOR_MULTIPLE = 8
"""Of 16-bit elements in the inner dimensions, which tensor cores need for their rate (NVIDIA, *Train With Mixed
Precision*)."""


def trained_in(work: Workload) -> Precision:
    """The precision of most of a job's FLOPs: ``torch.autocast`` leaves parameters in 32 bits."""
    flops: dict[bool, float] = defaultdict(float)
    for operator in work.operators:
        flops[_in_halves(operator.dtype)] += operator.flops or 0.0
    return "amp" if _in_halves(work.precision or "") or flops[True] > flops[False] else "fp32"


def in_bfloat16(work: Workload) -> bool:
    """Whether most of a job's FLOPs are in it, or its parameters are."""
    flops: dict[str, float] = defaultdict(float)
    for operator in work.operators:
        flops[operator.dtype.removeprefix("torch.")] += operator.flops or 0.0
    return "bfloat16" in (work.precision, max(flops, key=lambda each: flops[each], default=None))


def _in_halves(dtype: str) -> bool:
    return dtype.removeprefix("torch.") in _HALVES


def device_seconds(operators: Iterable[Operator], gpu: GpuFacts, to: Precision | None = None) -> float | None:
    """Of one step at peak rates; ``None`` if a rate that some operator needs is not known, or there is none.

    ``to`` amp runs products and convolutions of 32-bit numbers in 16 bits, as ``torch.autocast`` has it; to fp32
    whatever is in 16 bits in 32.
    """
    every = tuple(operators)
    seconds = 0.0
    for operator in every:
        if not operator.calls:
            continue
        flops, size = operator.flops or 0.0, operator.bytes or 0.0
        halves = _in_halves(operator.dtype)
        if to == "fp32" and halves:
            halves, size = False, size * 2
        elif to == "amp" and flops and operator.dtype.endswith("float32"):
            halves, size = True, size / 2
        peak = _peak(operator, gpu, halves) if flops else 1.0
        rate = gpu.memory_bytes_per_second if size else 1.0
        if not peak or not rate:
            return None
        seconds += max(flops / peak, size / rate, operator.calls * LAUNCH_SECONDS)
    return seconds if every else None


def autocast_ratio(work: Workload, gpu: GpuFacts) -> float | None:
    """Seconds with products and convolutions in 16 bits over seconds in 32, of which the job is one as it is."""
    amp = trained_in(work) == "amp"
    now, otherwise = (device_seconds(work.operators, gpu, to) for to in (None, "fp32" if amp else "amp"))
    if now is None or otherwise is None:
        return None
    return now / otherwise if amp else otherwise / now


def _peak(operator: Operator, gpu: GpuFacts, halves: bool) -> float | None:
    """FLOP/s that the operator's type and shapes allow on this GPU.

    PyTorch's defaults: convolutions of float32 run as TF32 where there is such a thing, matrix products do not. In 16
    bits tensor cores need channels of a convolution, or inner dimensions of a product, that are multiples of eight;
    unknown ones count as such.
    """
    convolution = "conv" in operator.operator
    if halves:
        shapes = [shape.split("x") for shape in re.findall(r"\b\d+(?:x\d+)+\b", operator.shapes)]
        fits = all(int(shape[1 if convolution else -1]) % _TENSOR_MULTIPLE == 0 for shape in shapes)
        if gpu.tensor_fp16_flops_per_second and fits:
            return gpu.tensor_fp16_flops_per_second
        return gpu.fp16_flops_per_second or gpu.fp32_flops_per_second
    if convolution and gpu.tensor_tf32_flops_per_second:
        return gpu.tensor_tf32_flops_per_second
    return gpu.fp32_flops_per_second
