"""When gradients travel: DistributedDataParallel's buckets in order on one stream, and sharded models' bytes.

Buckets become ready during the backward pass and are reduced one after the other, each not before it is ready. What
of that lies after the backward pass is *exposed*: the step waits for it. All arrays are draws first, ``[draws,
buckets]``; seconds are since the first gradient was ready. How long a collective takes is asked of
``collective_times``. Source: Li et al. 2020 (VLDB, arXiv 2006.15704) for the reducer.

Sharded models gather layer by layer what they need; what is exposed follows from when each layer's collective could
start and when its compute needs it. Sources: Rajbhandari et al. 2020 (arXiv 1910.02054) for the volumes, Zhao et al.
2023 (arXiv 2304.11277) for FSDP's order. Knows no offloading, no activation checkpoints and no hybrid sharding; held
to no measurement yet, beyond hand-worked cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stash.predict.cluster import Backend
from stash.predict.collective_times import Fabric, all_reduce, half_exchange
from stash.predict.draws import Array

FIRST_BUCKET = 2**20
"""Bytes of DistributedDataParallel's first bucket at most (``dist._DEFAULT_FIRST_BUCKET_BYTES``)."""
MIB = 2**20
"""The unit of ``bucket_cap_mb``."""


def exposed_seconds(ready: Array, exchange: Array) -> Array:
    """Seconds by which the last bucket's exchange ends after the backward pass would have ended alone, ``[draws]``.

    ``ready`` is when each bucket is ready without any exchange, ascending, and the last of it the backward pass's
    end; ``exchange`` how long each takes. finish_i = max(ready_i, finish_{i−1}) + t_i, so the last one finishes at
    max over i of (ready_i + t_i + … + t_last), which needs no loop.
    """
    remaining = np.cumsum(exchange[:, ::-1], axis=1)[:, ::-1]
    late: Array = (ready + remaining).max(axis=1) - ready[:, -1]
    return late


def bucket_sizes(
    gradients: Sequence[int], cap: float, first: float = FIRST_BUCKET
) -> tuple[int, ...]:
    """Bytes of each bucket, for gradients in the order in which they become ready.

    A bucket takes gradients until it holds ``cap`` bytes or more, the first one until ``first``, as the reducer does
    (``compute_bucket_assignment_by_size``): so a bucket exceeds its cap by up to one gradient.
    """
    found, held, limit = [], 0, min(first, cap)
    for size in gradients:
        held += size
        if held >= limit:
            found.append(held)
            held, limit = 0, cap
    return (*found, held) if held else tuple(found)


def bucket_readiness(
    gradients: Sequence[int], ready: Sequence[float], buckets: Sequence[float]
) -> Array:
    """When each bucket is ready: with the last gradient in it, ``[buckets]``, the last with the last gradient of all.

    Gradients and ``ready`` (seconds) are in the order of readiness, and buckets take them in that order.
    """
    until = np.cumsum(np.asarray(gradients, dtype=np.float64))
    ends = np.cumsum(np.asarray(buckets, dtype=np.float64))
    # A byte of tolerance: compressed or rounded buckets need not end exactly where a gradient does.
    last = np.minimum(np.searchsorted(until, ends - 1.0), len(until) - 1)
    last[-1] = len(until) - 1
    moments: Array = np.maximum.accumulate(np.asarray(ready, dtype=np.float64))[last]
    return moments


# Sharded models: FSDP and ZeRO stages 1 to 3

Stage = Literal[1, 2, 3]
"""ZeRO's: optimizer state, gradients too, parameters too. FSDP's FULL_SHARD is 3, its SHARD_GRAD_OP is 2."""


@dataclass(frozen=True)
class Shard:
    """One layer (FSDP's unit), in the order of the forward pass."""

    parameter_bytes: float
    """Gathered, in the precision in which they travel."""
    gradient_bytes: float
    forward_seconds: float
    backward_seconds: float


def exposed_sharded(
    fabric: Fabric, shards: tuple[Shard, ...], stage: Stage, backend: Backend, passes: int = 1
) -> Array:
    """Seconds by which a step of so many ``passes`` is longer than its compute, ``[draws]``.

    Stages 1 and 2 gather all parameters after the update, with nothing to hide behind. Where gradients are
    accumulated, stage 1 reduces them after the last pass; the others keep a part of them only, and so scatter them
    after each.
    """
    if stage == 3:
        return passes * _full_shard_delay(fabric, shards)
    ready = np.cumsum([shard.backward_seconds for shard in reversed(shards)])
    reduced = _gradient_seconds(fabric, shards, stage, backend)
    free = np.zeros(len(reduced))
    for moment, seconds in zip(ready, reduced.T, strict=True):
        free = np.maximum(free, moment) + seconds
    late: Array = (free - ready[-1]) * (1 if stage == 1 else passes) + _gather_update_seconds(
        fabric, shards
    )
    return late


def collective_seconds(
    fabric: Fabric, shards: tuple[Shard, ...], stage: Stage, backend: Backend, passes: int = 1
) -> Array:
    """Seconds of all of a step's collectives by themselves, ``[draws]``."""
    if stage == 3:
        gathers = half_exchange(fabric, np.array([shard.parameter_bytes for shard in shards])).sum(
            axis=1
        )
        travels: Array = passes * (
            2 * gathers + _gradient_seconds(fabric, shards, stage, backend).sum(axis=1)
        )
        return travels
    reduced = _gradient_seconds(fabric, shards, stage, backend).sum(axis=1)
    everything: Array = reduced * (1 if stage == 1 else passes) + _gather_update_seconds(
        fabric, shards
    )
    return everything


def _gradient_seconds(
    fabric: Fabric, shards: tuple[Shard, ...], stage: Stage, backend: Backend
) -> Array:
    """Seconds that each layer's gradients take, the last layer's first, ``[draws, layers]``."""
    gradients = np.array([shard.gradient_bytes for shard in reversed(shards)])
    return (
        all_reduce(fabric, gradients, backend) if stage == 1 else half_exchange(fabric, gradients)
    )


def _gather_update_seconds(fabric: Fabric, shards: tuple[Shard, ...]) -> Array:
    """Seconds of gathering all parameters at once after their update, ``[draws]``."""
    return half_exchange(fabric, np.array([sum(shard.parameter_bytes for shard in shards)]))[:, 0]


def _full_shard_delay(fabric: Fabric, shards: tuple[Shard, ...]) -> Array:
    """Stage 3: forward through all layers and backward through all, each gathered first, gradients scattered after.

    A pass begins when the one before has ended and its parameters are there. The stream takes, in this order: the
    gather of the next layer as soon as a pass begins (FSDP's ``forward_prefetch`` and ``backward_prefetch``), and its
    reduce-scatter when a backward pass has ended. Every layer is gathered twice, also the last, whose backward pass
    follows its forward pass at once.
    """
    passes = [(shard, shard.forward_seconds) for shard in shards]
    passes += [(shard, shard.backward_seconds) for shard in reversed(shards)]
    gathers = half_exchange(fabric, np.array([shard.parameter_bytes for shard, _ in passes]))
    scatters = half_exchange(fabric, np.array([shard.gradient_bytes for shard, _ in passes]))
    now, there = np.zeros(len(fabric.inside)), gathers[:, 0]
    stream = there
    for number, (_, seconds) in enumerate(passes):
        begins = np.maximum(now, there)
        if number + 1 < len(passes):
            there = stream = np.maximum(stream, begins) + gathers[:, number + 1]
        now = begins + seconds
        if number >= len(shards):
            stream = np.maximum(stream, now) + scatters[:, number]
    longer: Array = np.maximum(now, stream) - sum(seconds for _, seconds in passes)
    return longer
