"""The peak rates of a GPU that an emulation is made for, from the catalog's facts.

Picks the operations per second that a precision runs at, and one of a model's variants. Pure: facts in,
rates out; what is unknown in the catalog is refused, never guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stash.base.errors import UserError
from stash.keep.catalog import Catalog, GpuFacts

VALUE_BYTES = {"fp32": 4, "fp16": 2}
"""Bytes of a value in the passes, by precision."""


@dataclass(frozen=True)
class Peak:
    """Peak rates, operations and bytes per second, and which GPU's they are by whose word."""

    flops_per_second: float
    memory_bytes_per_second: float
    about: str


def variants(name: str, catalog: Catalog) -> tuple[GpuFacts, ...]:
    """Every variant of the model of that name, else the one GPU of that name; raises UserError naming the nearest."""
    model = tuple(gpu for gpu in catalog.gpus if gpu.model.lower() == name.strip().lower())
    return model or (catalog.gpu(name),)


def peak(gpus: Sequence[GpuFacts], precision: str) -> Peak:
    """The rates of the fastest variant; raises UserError if the catalog does not know them."""
    known = [
        (flops, gpu.memory_bytes_per_second, gpu)
        for gpu in gpus
        if (flops := _flops(gpu, precision)) is not None and gpu.memory_bytes_per_second is not None
    ]
    if not known:
        raise UserError(
            f"the catalog does not know the {precision} rate of {gpus[0].name}; give it with --tflops and --memory"
        )
    flops, memory, gpu = max(known, key=lambda one: one[:2])  # of equals the first: the one with least memory
    others = [other.name for other in gpus if other is not gpu]
    choice = f", the fastest of its variants (others: {', '.join(others)})" if others else ""
    about = f"{gpu.name}{choice}, {precision}: {flops / 1e12:g} TFLOP/s, {memory / 1e9:g} GB/s"
    return Peak(flops, memory, f"{about} (as of {gpu.as_of}; {gpu.source})")


def _flops(gpu: GpuFacts, precision: str) -> float | None:
    """Tensor cores where there are any: PyTorch's autocast uses them."""
    if precision == "fp32":
        return gpu.fp32_flops_per_second
    return gpu.tensor_fp16_flops_per_second or gpu.fp16_flops_per_second
