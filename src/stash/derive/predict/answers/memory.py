"""How much of a device's memory a step needs at another batch or sharded, and the largest batch that fits.

A line through one measured peak: what does not depend on the batch (parameters, gradients, the optimizer's state) is
known from the model, and the rest is activations, which grow with the samples. Allocators round up and keep free
blocks, so the peak of what tensors hold is scaled and what the allocator keeps beside it stays a factor. What of this
is checked, and what is not: ``docs/prediction.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stash.derive.predict.exchange.sharded import Stage

RESERVE = 0.06
"""Of a device's memory that no tensor gets: CUDA's context, NCCL's buffers, fragments. An allowance, not a
measurement: about 5 GB of 80, 1 GB of 16."""


@dataclass(frozen=True)
class ModelState:
    """Bytes of a whole model on one device that holds all of it."""

    parameter_bytes: float
    """As many are its gradients."""
    optimizer_bytes: float
    unit_bytes: float
    """Parameters of the largest unit that is gathered at once, if it is sharded: its largest bucket."""


@dataclass(frozen=True)
class Footprint:
    """Bytes on one device: ``constant`` and ``per_sample`` of one batch."""

    constant: float
    per_sample: float

    def at(self, batch: float) -> float:
        """Peak bytes with so many samples in a (micro-)batch."""
        return self.constant + batch * self.per_sample

    def largest_batch(self, memory_bytes: float) -> int:
        """Samples that fit; 0 if not even one does."""
        room = memory_bytes * (1 - RESERVE) - self.constant
        return max(0, math.floor(room / self.per_sample))

    @staticmethod
    def fits(needed_bytes: float, memory_bytes: float) -> bool:
        """Whether so many bytes of tensors fit into that memory."""
        return needed_bytes <= memory_bytes * (1 - RESERVE)


def constant_bytes(state: ModelState, buckets: bool, stage: Stage | None = None, ranks: int = 1) -> float:
    """Bytes on one device that do not depend on the batch.

    Parameters P, as many gradients, as many again in DistributedDataParallel's ``buckets`` (unless gradients are
    views into them), and the optimizer's state O: 3P + O. Stage 1 keeps O/p on each of p ``ranks``; stage 2 also
    P/p of gradients, and a unit that is being reduced; stage 3 also P/p of parameters, with two units gathered, the
    present one and the next (Rajbhandari et al. 2020, arXiv 1910.02054, section 5; FSDP's ``forward_prefetch``).
    """
    parameters, optimizer, unit = state.parameter_bytes, state.optimizer_bytes, state.unit_bytes
    if stage is None:
        return parameters * (3 if buckets else 2) + optimizer
    if stage == 1:
        return parameters * (3 if buckets else 2) + optimizer / ranks
    if stage == 2:
        return parameters + (parameters + optimizer) / ranks + unit
    return (2 * parameters + optimizer) / ranks + 3 * unit


def footprint(peak_bytes: float, batch: float, constant: float, constant_there: float) -> Footprint | None:
    """From one measured peak with ``constant`` bytes in it, of a job that holds ``constant_there`` instead.

    ``None`` if what is constant is more than that peak, and the line has no slope.
    """
    per_sample = (peak_bytes - constant) / batch
    return Footprint(constant_there, per_sample) if per_sample > 0 else None
