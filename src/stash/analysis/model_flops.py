"""Tokens a second, and how much of a GPU's peak a step uses: by the operators counted, and by the usual formula.

Counted FLOPs are those of PyTorch's formulas for the products, convolutions and attention of one step of one device;
what activation checkpointing computes again is among them, so their share of the peak is the hardware's (HFU). The
formula for transformers, 6 x parameters x tokens (Kaplan et al., 2020; PaLM, 2022, appendix B, without its term for
attention), counts nothing twice: its share is the model's (MFU). Peaks are the catalog's, for the data type of the
operators. Both are of the step as it was measured, stalls and all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from stash.analysis.breakdown import Breakdown
from stash.catalog.facts import GpuFacts, found_by_name
from stash.core.records.profile import Profile

_PER_PARAMETER = 6
"""FLOPs of a token: two of the forward pass, four of the backward pass."""
_WITH_BFLOAT16 = frozenset({"Ampere", "Ada", "Hopper", "Blackwell", "CDNA2", "CDNA3", "CDNA4"})


@dataclass(frozen=True)
class ModelFlops:
    """What a step computes; ``None`` is unknown."""

    tokens_per_step: float | None = None
    """Of all replicas together, padding included."""
    tokens_per_second: float | None = None
    padding: float | None = None
    """Of these tokens, the share that is masked."""
    counted: float | None = None
    """FLOPs of a step of one device."""
    counted_per_second: float | None = None
    gpu: str | None = None
    precision: str | None = None
    """The data type that most of them are computed in: the peak's."""
    peak_per_second: float | None = None
    counted_share: float | None = None
    """HFU."""
    model_share: float | None = None
    """MFU."""


def model_flops(breakdown: Breakdown, profile: Profile, gpus: Sequence[GpuFacts]) -> ModelFlops:
    """Of a profile, with the peaks of ``gpus``."""
    work = profile.workload
    step = breakdown.step_seconds
    samples = breakdown.samples_per_step
    each = work.tokens_per_sample
    tokens = None if each is None or samples is None else each * samples
    gpu = _gpu(profile, gpus)
    by_type: dict[str, float] = defaultdict(float)
    for row in work.operators:
        by_type[row.dtype] += row.flops or 0.0
    counted = work.flops_per_step or None
    most = max(by_type, key=lambda name: by_type[name], default=None)
    peaks = {
        name: _peak(gpu, name, work.float32_products)
        for name, flops in by_type.items()
        if flops > 0
    }
    peak = None if most is None else peaks.get(most)
    ideal = (
        sum(by_type[name] / peak for name, peak in peaks.items() if peak)
        if all(peaks.values())
        else 0.0
    )
    known = tokens is not None and work.whole_parameters is not None
    model = _PER_PARAMETER * (work.whole_parameters or 0) * (tokens or 0.0) if known else None
    return ModelFlops(
        tokens_per_step=tokens,
        tokens_per_second=None if tokens is None else tokens / step,
        padding=work.padding,
        counted=counted,
        counted_per_second=None if counted is None else counted / step,
        gpu=None if gpu is None else gpu.name,
        precision=most if peak is not None else None,
        peak_per_second=peak,
        counted_share=ideal / step if ideal else None,  # seconds of a step at each type's peak
        model_share=None
        if model is None or peak is None
        else model / step / breakdown.world_size / peak,
    )


def _gpu(profile: Profile, gpus: Sequence[GpuFacts]) -> GpuFacts | None:
    """The one that all ranks train on; ``None`` on CPUs, on several kinds, and on one that no table knows."""
    names = {gpu.name for host in profile.hosts for gpu in host.gpus}
    if len(names) != 1 or any(rank.device == "cpu" for rank in profile.ranks):
        return None
    found = found_by_name(names.pop(), gpus)
    return found[0] if len(found) == 1 else None


def _peak(gpu: GpuFacts | None, precision: str, float32_products: str | None) -> float | None:
    """FLOPs a second; of float32 products TF32's where the job allows it and the GPU has it."""
    if gpu is None:
        return None
    if precision == "bfloat16":
        return gpu.tensor_fp16_flops_per_second if gpu.architecture in _WITH_BFLOAT16 else None
    if precision == "float16":
        return gpu.tensor_fp16_flops_per_second or gpu.fp16_flops_per_second
    if precision != "float32" or float32_products is None:
        return None
    return (
        gpu.tensor_tf32_flops_per_second if float32_products != "highest" else None
    ) or gpu.fp32_flops_per_second
