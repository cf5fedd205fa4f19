"""The precision that a profiled job trains in, as its operators tell."""

from __future__ import annotations

from collections import defaultdict
from typing import Literal

from stash.core.records.profile import Workload

Precision = Literal["fp32", "amp"]
"""As published speeds call it: all in 32 bits, or products and convolutions in 16."""
_HALVES = ("float16", "bfloat16", "half")


def training_precision(work: Workload) -> Precision:
    """The precision of most of a job's FLOPs: ``torch.autocast`` leaves parameters in 32 bits."""
    flops: dict[bool, float] = defaultdict(float)
    for operator in work.operators:
        flops[_is_half(operator.dtype)] += operator.flops or 0.0
    return "amp" if _is_half(work.precision or "") or flops[True] > flops[False] else "fp32"


def is_bfloat16(work: Workload) -> bool:
    """Whether most of a job's FLOPs are in it, or its parameters are."""
    flops: dict[str, float] = defaultdict(float)
    for operator in work.operators:
        flops[operator.dtype.removeprefix("torch.")] += operator.flops or 0.0
    return "bfloat16" in (work.precision, max(flops, key=lambda each: flops[each], default=None))


def _is_half(dtype: str) -> bool:
    return dtype.removeprefix("torch.") in _HALVES
