"""A roofline of each operator: how long a device takes for a step's arithmetic and memory traffic, at its peak rates.

A call takes its FLOPs at the peak its shapes and type can have, or its bytes at the memory's rate, or as long as it
takes to launch it: whichever is longest (Williams, Waterman and Patterson 2009). No device reaches its peaks, so only
ratios of two devices' times are used; how far these are from published ones is ``ratios``' business.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from stash.base.records import Operator
from stash.keep.catalog.facts import GpuFacts

LAUNCH_SECONDS = 5e-6
"""Between the starts of two kernels of a running stream: 3.8 to 9.6 µs on a V100 (A. Gray, *Getting Started with CUDA
Graphs*, NVIDIA, 2019). It is the host's work, the same whatever the GPU."""
_TENSOR_MULTIPLE = 8
"""Of 16-bit elements in the inner dimensions, which tensor cores need for their rate (NVIDIA, *Train With Mixed
Precision*)."""
_HALF = ("float16", "bfloat16", "half")


def device_seconds(operators: Iterable[Operator], gpu: GpuFacts, half: bool = False) -> float | None:
    """Of one step at peak rates; ``None`` if a rate that some operator needs is not known, or there is none.

    With ``half`` products and convolutions of 32-bit numbers run in 16 bits, as ``torch.autocast`` has it.
    """
    seconds, any_of_them = 0.0, False
    for operator in operators:
        took = _seconds_of(operator, gpu, half)
        if took is None:
            return None
        seconds, any_of_them = seconds + took, True
    return seconds if any_of_them else None


def roofline_ratio(operators: Iterable[Operator], first: GpuFacts, second: GpuFacts) -> float | None:
    """Seconds on ``second`` over seconds on ``first``."""
    every = tuple(operators)
    old, new = device_seconds(every, first), device_seconds(every, second)
    return None if old is None or new is None else new / old


def autocast_ratio(operators: Iterable[Operator], gpu: GpuFacts) -> float | None:
    """Seconds with products and convolutions in 16 bits over seconds as it is."""
    every = tuple(operators)
    old, new = device_seconds(every, gpu), device_seconds(every, gpu, half=True)
    return None if old is None or new is None else new / old


def _seconds_of(operator: Operator, gpu: GpuFacts, half: bool) -> float | None:
    if not operator.calls:
        return 0.0
    flops, size = operator.flops or 0.0, operator.bytes or 0.0
    narrowed = half and bool(flops) and operator.dtype.endswith("float32")
    if narrowed:
        size /= 2
    peak = _peak(operator, gpu, narrowed) if flops else 1.0
    rate = gpu.memory_bytes_per_second if size else 1.0
    if not peak or not rate:
        return None
    return max(flops / peak, size / rate, operator.calls * LAUNCH_SECONDS)


def _peak(operator: Operator, gpu: GpuFacts, narrowed: bool) -> float | None:
    """FLOP/s that the operator's type and shapes allow on this GPU.

    PyTorch's defaults: convolutions of float32 run as TF32 where there is such a thing, matrix products do not.
    """
    if narrowed or operator.dtype.removeprefix("torch.") in _HALF:
        if gpu.tensor_fp16_flops_per_second and _fits_tensor_cores(operator):
            return gpu.tensor_fp16_flops_per_second
        return gpu.fp16_flops_per_second or gpu.fp32_flops_per_second
    if "conv" in operator.operator and gpu.tensor_tf32_flops_per_second:
        return gpu.tensor_tf32_flops_per_second
    return gpu.fp32_flops_per_second


def _fits_tensor_cores(operator: Operator) -> bool:
    """Channels of a convolution, inner dimensions of a product: multiples of eight. Unknown ones count as such."""
    shapes = [[int(size) for size in shape.split("x")] for shape in re.findall(r"\b\d+(?:x\d+)+\b", operator.shapes)]
    inner = [shape[1] if "conv" in operator.operator else shape[-1] for shape in shapes]
    return all(size % _TENSOR_MULTIPLE == 0 for size in inner)
