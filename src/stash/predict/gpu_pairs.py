"""Published pairs of training times, at two batches or precisions, and the precision that a job trains in.

What an estimate from pairs is worth is told by its errors over models that were left out when they were predicted:
fit and test never share a model. Between GPUs forecasts go by ``gpu_scale``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import stdtrit

from stash.catalog.reference import Speed, speeds
from stash.core.records.profile import Workload

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


# What a job's operators tell

LAUNCH_SECONDS = 5e-6
"""Between the starts of two kernels of a running stream: 3.8 to 9.6 µs on a V100 (A. Gray, *Getting Started with CUDA
Graphs*, NVIDIA, 2019). It is the host's work, the same whatever the GPU."""


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
