"""What a rule is given and what it answers: offers with their data sheets, the job's own facts, and a pick of them.

There is no forecast here, so that no rule can look at one. Whatever a rule's users would not know is not a field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from stash.base.plan import HourlyPrice
from stash.derive.predict.compute.pairs import PRECISIONS
from stash.keep.catalog import GpuFacts, Instance


@dataclass(frozen=True)
class Offered:
    """An instance at a price, with its GPU's data sheet."""

    instance: Instance
    price: HourlyPrice
    devices: int
    """Of a node."""
    most_nodes: int
    gpu: GpuFacts | None = None
    """``None`` without GPUs, and where no source says which it is."""

    @property
    def key(self) -> str:
        return f"{self.instance.cloud}/{self.instance.name}"

    @property
    def dollars_per_hour(self) -> float:
        """Of a node."""
        return self.price.dollars_per_hour.value

    def peak(self, precision: str) -> float | None:
        """FLOP/s of one GPU on its data sheet as frameworks run this precision, without sparsity."""
        gpu = self.gpu
        if gpu is None:
            return None
        fp32 = gpu.tensor_tf32_flops_per_second or gpu.fp32_flops_per_second
        if precision == PRECISIONS[0]:
            return fp32
        return gpu.tensor_fp16_flops_per_second or gpu.fp16_flops_per_second or fp32


class Picked(NamedTuple):
    """So many of an offer."""

    offer: Offered
    nodes: int

    @property
    def dollars_per_hour(self) -> float:
        return self.nodes * self.offer.dollars_per_hour


@dataclass(frozen=True)
class RuleFacts:
    """What those who follow a rule know of their job."""

    samples: float
    """Of the whole training."""
    nodes: int
    devices: int
    """Of a node: what the job ran on when it was profiled, which is what people ask for again."""
    precision: str = PRECISIONS[0]
    """``fp32`` or ``amp``."""
    deadline_seconds: float | None = None
    budget_dollars: float | None = None
    rates: Mapping[str, float] = field(default_factory=dict)
    """Samples per second of one GPU by itself, by GPU model: the profiled one's times published ratios."""
    measured: Mapping[tuple[str, int], float] = field(default_factory=dict)
    """Samples per second of the whole job where it was profiled, by instance type and nodes."""
    trial_seconds: float | None = None
    """What one measurement takes."""


Chooses = Callable[["list[Offered]", RuleFacts], "Picked | str"]
"""A rule: what it would rent, or why it can choose nothing."""
