"""How much of a device's memory a step needs at another batch, and the largest batch that fits.

A line through one measured peak: what does not depend on the batch (parameters, gradients, the optimizer's state) is
known from the model, and the rest is activations, which grow with the samples. Allocators round up and keep free
blocks, so the peak of what tensors hold is scaled and what the allocator keeps beside it stays a factor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stash.derive.predict.quantity import Quantity

RESERVE = 0.06
"""Of a device's memory that no tensor gets: CUDA's context, NCCL's buffers, fragments. An allowance, not a
measurement: about 5 GB of 80, 1 GB of 16."""


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


def footprint(
    peak_bytes: float, batch: float, parameter_bytes: float, optimizer_bytes: float, buckets: bool
) -> Footprint | None:
    """From one measured peak; ``None`` if what is constant is more than that peak, and the line has no slope.

    Constant are parameters, as many gradients, as many again in DDP's buckets (``buckets``: unless they are views),
    and the optimizer's state.
    """
    constant = parameter_bytes * (3 if buckets else 2) + optimizer_bytes
    per_sample = (peak_bytes - constant) / batch
    return Footprint(constant, per_sample) if per_sample > 0 else None


def fits(needed: Footprint, batch: float, memory: Quantity) -> bool:
    """Whether a batch fits into that memory."""
    return needed.at(batch) <= memory.value * (1 - RESERVE)
