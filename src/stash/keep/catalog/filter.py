"""What a person wants of an offer, and whether an instance has it: yes, no, or not known.

A fact that is not known never satisfies a wish; it is reported by name, so that whoever asks can say how many
offers were left out for it. Knows one instance at a time and nothing of prices.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from stash.keep.catalog.facts import Instance, PriceKind
from stash.keep.catalog.names import tokens

_ROUNDING = 1 - 1e-3
"""Published memory sizes have four digits ("22.35 GiB" for 24 GB), so a minimum allows for the last one."""


class OfferFilter(BaseModel):
    """Wishes; every one that is given must be met. Sizes in bytes, rates in bytes per second, prices in $/h."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    gpu: str | None = Field(None, pattern=r"[A-Za-z0-9]")
    """A model or a variant in any case: ``V100``, ``A100-80GB``, ``A100-SXM4-80GB``."""
    min_gpu_count: float | None = Field(None, ge=0)
    max_gpu_count: float | None = Field(None, ge=0)
    min_gpu_memory_bytes: float | None = Field(None, gt=0)
    """Of one GPU."""
    cloud: str | None = None
    region: str | None = None
    kinds: tuple[PriceKind, ...] = ("on-demand",)
    max_dollars_per_hour: float | None = Field(None, gt=0)
    min_network_bytes_per_second: float | None = Field(None, gt=0)
    """Of the sustained rate, not of a burst."""
    interconnect: str | None = None
    """Beginning of one part of the fabric's name: ``nvlink``, ``nvlink3``, ``nvswitch``, ``pcie``."""
    min_vcpus: float | None = Field(None, gt=0)
    min_memory_bytes: float | None = Field(None, gt=0)


Judgement = tuple[bool | None, str]
"""Whether a wish is met (``None``: not known) and the name of the fact it is about."""


def _at_least(value: float | None, wanted: float | None, fact: str, slack: float = 1.0) -> Judgement:
    if wanted is None:
        return True, fact
    return (None if value is None else value >= wanted * slack), fact


def has_gpu(instance: Instance, wanted: str) -> bool | None:
    """Whether the instance's GPU is the ``wanted`` model or variant; ``None`` when only the variant is unknown."""
    if instance.gpu_model is None:
        return False if instance.gpu_count == 0 else None
    words, have = tokens(wanted), tokens(instance.gpu_model)
    if instance.gpu is not None:
        have |= tokens(instance.gpu)
    if instance.gpu_memory_bytes is not None:
        have |= {f"{round(instance.gpu_memory_bytes / 2**30)}gb"}
    if words <= have:
        return True
    if not words & tokens(instance.gpu_model):
        return False
    sizes_differ = instance.gpu_memory_bytes is not None and any(word.endswith("gb") for word in words - have)
    return None if instance.gpu is None and not sizes_differ else False


def _gpu(instance: Instance, wish: OfferFilter) -> list[Judgement]:
    most, count = wish.max_gpu_count, instance.gpu_count
    fewer = True if most is None else None if count is None else count <= most
    cpu_only = count == 0
    least_memory = wish.min_gpu_memory_bytes
    memory = (False, "GPU memory") if cpu_only and least_memory is not None else None
    return [
        (True if wish.gpu is None else has_gpu(instance, wish.gpu), "exact GPU"),
        _at_least(count, wish.min_gpu_count, "GPU count"),
        (fewer, "GPU count"),
        memory or _at_least(instance.gpu_memory_bytes, least_memory, "GPU memory", _ROUNDING),
    ]


def _fabric(instance: Instance, wanted: str | None) -> Judgement:
    if wanted is None:
        return True, "interconnect"
    if instance.interconnect is None:
        return (False if instance.gpu_count == 0 else None), "interconnect"
    return any(part.startswith(wanted.lower()) for part in instance.interconnect.lower().split("+")), "interconnect"


def judge(instance: Instance, wish: OfferFilter) -> Judgement:
    """(True, "") when every wish about the instance is met, (False, "") when one is known not to be.

    (None, fact) when nothing is known to be missing but ``fact`` is not known.
    """
    same_cloud = wish.cloud is None or instance.cloud.lower() == wish.cloud.lower()
    findings = [
        (same_cloud, "cloud"),
        *_gpu(instance, wish),
        _at_least(instance.network_bytes_per_second, wish.min_network_bytes_per_second, "network"),
        _fabric(instance, wish.interconnect),
        _at_least(instance.vcpus, wish.min_vcpus, "vCPUs"),
        _at_least(instance.memory_bytes, wish.min_memory_bytes, "memory", _ROUNDING),
    ]
    if any(met is False for met, _ in findings):
        return False, ""
    unknown = [fact for met, fact in findings if met is None]
    return (None, unknown[0]) if unknown else (True, "")
