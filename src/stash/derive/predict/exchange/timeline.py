"""When a step's gradients are exchanged: DistributedDataParallel's buckets on one communication stream, in order.

Buckets become ready during the backward pass and are reduced one after the other, each not before it is ready. What
of that lies after the backward pass is *exposed*: the step waits for it. All arrays are draws first, ``[draws,
buckets]``; seconds are since the first gradient was ready. Does not know how long a collective takes, nor who waits
for whom. Source: Li et al. 2020 (VLDB, arXiv 2006.15704) for the reducer; the recurrence is its schedule written
down.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stash.derive.predict.uncertainty.draws import Array

FIRST_BUCKET = 2**20
"""Bytes of DistributedDataParallel's first bucket at most (``dist._DEFAULT_FIRST_BUCKET_BYTES``)."""
MIB = 2**20
"""The unit of ``bucket_cap_mb``."""


def exposed(ready: Array, exchange: Array, slowdown: Array | float = 0.0) -> Array:
    """Seconds by which the last bucket's exchange ends after the backward pass would have ended alone, ``[draws]``.

    ``ready`` is when each bucket is ready without any exchange, ascending, and the last of it the backward pass's
    end; ``exchange`` how long each takes. finish_i = max(ready_i, finish_{i−1}) + t_i, so the last one finishes at
    max over i of (ready_i + t_i + … + t_last), which needs no loop.

    ``slowdown`` κ, a number or ``[draws]``: while buckets travel, the backward pass is slower by 1 + κ, since copies
    and reductions take memory bandwidth, cores or SMs from it. Then readiness itself depends on what travels, bucket
    after bucket: between bucket i−1 and i the stream is busy for b seconds, and a pass that needs Δ alone takes
    Δ + κ/(1+κ) · min(Δ(1+κ), b).
    """
    if not np.any(slowdown):
        remaining = np.cumsum(exchange[:, ::-1], axis=1)[:, ::-1]
        late: Array = (ready + remaining).max(axis=1) - ready[:, -1]
        return late
    kappa = np.asarray(slowdown, dtype=np.float64)
    alone = np.diff(ready, axis=1)
    now, free = ready[:, 0].copy(), ready[:, 0] + exchange[:, 0]
    for i in range(1, ready.shape[1]):
        needed = alone[:, i - 1] * (1 + kappa)
        now += alone[:, i - 1] + kappa / (1 + kappa) * np.minimum(needed, free - now)
        free = np.maximum(free, now) + exchange[:, i]
    slowed: Array = free - ready[:, -1]
    return slowed


def bucket_sizes(gradients: Sequence[int], cap: float, first: float = FIRST_BUCKET) -> tuple[int, ...]:
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


def bucket_readiness(gradients: Sequence[int], ready: Sequence[float], buckets: Sequence[float]) -> Array:
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


def copies(size: float, memory_bytes_per_second: float) -> float:
    """Seconds a step of copying ``size`` bytes of gradients into their buckets and back.

    Every byte is read and written twice, 4n / (memory bandwidth); with ``gradient_as_bucket_view`` nobody does.
    """
    return 4 * size / memory_bytes_per_second
