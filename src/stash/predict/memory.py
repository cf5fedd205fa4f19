"""How much of a device's memory a step needs at another batch, and the largest batch that fits.

A line through one measured peak: what does not depend on the batch (parameters, gradients, the optimizer's state) is
known from the model, and the rest is activations, which grow with the samples. Allocators round up and keep free
blocks, so the peak of what tensors hold is scaled and what the allocator keeps besides stays a factor. What of this
is checked, and what is not: ``docs/how-we-know.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stash.core.records.profile import Profile
from stash.predict.changed_job import ChangedJob
from stash.predict.exposure import shards_itself
from stash.predict.passes import Base

RESERVE = 0.06
"""Of a device's memory that no tensor gets: CUDA's context, NCCL's buffers, fragments. An allowance, not a
measurement: about 5 GB of 80, 1 GB of 16."""


@dataclass(frozen=True)
class Footprint:
    """Bytes on one device: ``constant`` and ``per_sample`` of one batch."""

    constant: float
    per_sample: float

    def bytes_at(self, batch: float) -> float:
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


def footprint(
    peak_bytes: float, batch: float, constant: float, constant_there: float
) -> Footprint | None:
    """From one measured peak with ``constant`` bytes in it, of a job that holds ``constant_there`` instead.

    ``None`` if what is constant is more than that peak, and the line has no slope.
    """
    per_sample = (peak_bytes - constant) / batch
    return Footprint(constant_there, per_sample) if per_sample > 0 else None


def peak_bytes(profile: Profile) -> float | None:
    """The most that tensors held on one device, of the rank with most; ``None`` on CPUs and if not recorded."""
    held = [each.allocated_bytes for each in profile.memory if each.allocated_bytes]
    return max(held, default=None)


def holds_shards(base: Base, ranks: int, memory_bytes: float | None) -> bool:
    """Whether a device of so many ranks holds its part of a model that the job shards itself.

    On fewer ranks than were profiled all that one held is taken to grow, as how much of it are shards is unrecorded.
    """
    held, times = peak_bytes(base.profile), base.target.ranks / ranks
    if times <= 1 or base.target.device is None or not shards_itself(base.profile.workload):
        return True
    return (
        held is not None and memory_bytes is not None and Footprint.fits(times * held, memory_bytes)
    )


@dataclass(frozen=True)
class Fit:
    """A device's memory: what a step needs of it, and the batch that would just fit."""

    needed_bytes: float
    memory_bytes: float | None
    largest_batch: int | None
    fits: bool | None


def memory_fit(job: ChangedJob) -> Fit | None:
    """What the step needs of a device's memory; ``None`` where the profile holds no peak, or on CPUs.

    What other meshes need is ``mesh``'s, which refuses those that do not fit.
    """
    line = None if job.mesh is not None else job_footprint(job.base, job.target.ranks)
    if line is None or job.passes is None:
        return None
    needed = line.bytes_at(job.passes.batch)
    memory = job.target.device_memory_bytes
    if memory is None:
        return Fit(needed, None, None, None)
    return Fit(
        needed, memory.value, line.largest_batch(memory.value), line.fits(needed, memory.value)
    )


def job_footprint(base: Base, ranks: int | None = None) -> Footprint | None:
    """What a batch needs on one of so many ranks, by default as many as were profiled.

    Constant are parameters, as many gradients, as many again in DistributedDataParallel's buckets (unless gradients
    are views into them), and the optimizer's state. ``None`` where the profile holds no peak, on CPUs, and of a job
    that shards its model itself.
    """
    work, peak = base.profile.workload, peak_bytes(base.profile)
    if peak is None or base.passes is None or work.parameter_bytes is None or shards_itself(work):
        return None

    def constant(ranks: int) -> float:
        copies = 3 if ranks > 1 and not work.bucket_view else 2
        return copies * (work.parameter_bytes or 0) + (work.optimizer_bytes or 0)

    profiled = base.target.ranks
    there = constant(profiled if ranks is None else ranks)
    return footprint(peak, base.passes.batch, constant(profiled), there)
