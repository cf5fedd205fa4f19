"""When gradients travel: DistributedDataParallel's buckets, in order on one stream.

Buckets become ready during the backward pass and are reduced one after the other, each not before it is ready. What
of that lies after the backward pass is *exposed*: the step waits for it. All arrays are draws first, ``[draws,
buckets]``; seconds are since the first gradient was ready. How long a collective takes is asked of
``collective_times``. Source: Li et al. 2020 (VLDB, arXiv 2006.15704) for the reducer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

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
