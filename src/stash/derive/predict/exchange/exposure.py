"""What of a job's exchange a fabric exposes, changed as asked: the model alone, held to no measurement.

Asks ``timeline`` when buckets travel or, for a sharded model, ``sharded``; what a collective takes, ``collectives``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stash.derive.predict.exchange import collectives, sharded, timeline
from stash.derive.predict.exchange.collectives import Algorithm, Fabric
from stash.derive.predict.exchange.sharded import Shard, Stage
from stash.derive.predict.exchange.traffic import Exchanged
from stash.derive.predict.target.cluster import Backend
from stash.derive.predict.uncertainty.draws import Array

_FORWARD = 0.5
"""Of a layer's backward pass: it computes two products where the forward pass computes one."""


@dataclass(frozen=True)
class ExchangeChanges:
    """What of the exchange is not as it was profiled."""

    bucket_cap: float | None = None
    """Bytes; ``None`` keeps the buckets."""
    compress: float = 1.0
    """Bytes that travel, of those that did."""
    times: float | None = None
    """Exchanges a step; ``None`` keeps them."""
    algorithm: Algorithm | None = None
    """``None``: as the library chooses."""
    compute: float = 1.0
    """Of the backward pass's length as profiled."""
    copy_seconds: float = 0.0
    """Of a step, added: copies into buckets that were views before, or, negative, no more (``timeline.copies``)."""
    slowdown: float = 0.0
    """How much slower the backward pass is while buckets travel; 0 leaves that to what was measured."""
    sharding: Stage | None = None
    """``None``: every rank holds the whole model."""
    passes: int = 1
    """Forward and backward passes of a step: a sharded model travels in each."""


AS_MEASURED = ExchangeChanges()


def bucket_times(fabric: Fabric, work: Exchanged, backend: Backend, changes: ExchangeChanges) -> Array:
    """Seconds that each bucket's exchange takes by itself, ``[draws, buckets]``."""
    sizes = np.array(buckets_of(work, changes)) * changes.compress
    return collectives.all_reduce(fabric, sizes, backend, changes.algorithm)


def alone(fabric: Fabric, work: Exchanged, backend: Backend, changes: ExchangeChanges) -> Array:
    """T: seconds of a step's whole exchange, nothing else going on, ``[draws]``."""
    if changes.sharding is not None:
        together = sharded.alone(fabric, shards_of(work, changes), changes.sharding, backend, changes.passes)
    else:
        together = bucket_times(fabric, work, backend, changes).sum(axis=1) * times_of(work, changes)
    everything: Array = together + _own_gathers(fabric, work) + others(fabric, work, backend)
    return everything


def exposed(
    fabric: Fabric,
    work: Exchanged,
    backend: Backend,
    changes: ExchangeChanges,
    hidden: Array | float = 0.0,
    looks: Array | None = None,
) -> Array:
    """X: seconds of a step that this fabric's exchange lasts beyond the backward pass, ``[draws]``.

    Of several steps whose readiness is known it is their mean, weighted by ``looks``, ``[draws, steps]`` (``None``:
    alike). Where nobody knows when buckets are ready, ``hidden`` seconds of it are behind the backward pass, and the
    last of several buckets never is: it is ready when the pass ends.
    """
    if changes.sharding is not None:
        late = sharded.exposed(fabric, shards_of(work, changes), changes.sharding, backend, passes=changes.passes)
        in_shards: Array = late + others(fabric, work, backend)
        return in_shards
    each = bucket_times(fabric, work, backend, changes)
    if work.ready:
        moments = moments_of(work, changes) * changes.compute
        every = [timeline.exposed(np.broadcast_to(row, each.shape), each, changes.slowdown) for row in moments]
        weights = np.full((len(each), len(every)), 1 / len(every)) if looks is None else looks
        late = np.sum(np.array(every).T * weights, axis=1)
    else:
        never_hidden = each[:, -1] if each.shape[1] > 1 else np.zeros(len(each))
        late = np.maximum(each.sum(axis=1) + _own_gathers(fabric, work) - hidden, never_hidden)
    waited: Array = late * times_of(work, changes) + others(fabric, work, backend)
    return waited


def moments_of(work: Exchanged, changes: ExchangeChanges) -> Array:
    """When each bucket is ready in each step that was looked at, ``[steps, buckets]`` in seconds."""
    if changes.bucket_cap is None and work.buckets_ready:
        return np.array(work.buckets_ready)
    buckets = buckets_of(work, changes)
    return np.array([timeline.bucket_readiness(work.gradients, each, buckets) for each in work.gradients_ready])


def shards_of(work: Exchanged, changes: ExchangeChanges) -> tuple[Shard, ...]:
    """The layers of a model that would be sharded, in the order of its forward pass: its buckets, each a unit.

    A unit's backward pass ends when its bucket is ready, in the mean over the steps that were looked at; parameters
    are as large as their gradients.
    """
    sizes = np.array(buckets_of(work, changes)) * changes.compress
    backward = np.diff(moments_of(work, changes).mean(axis=0), prepend=0.0) * changes.compute
    return tuple(
        Shard(size / changes.compress, size, _FORWARD * seconds, seconds)
        for size, seconds in zip(sizes[::-1].tolist(), backward[::-1].tolist(), strict=True)
    )


def _own_gathers(fabric: Fabric, work: Exchanged) -> Array:
    """Seconds of all gathers and scatters of a model that the job shards itself, ``[draws]``."""
    seconds = np.zeros(len(fabric.inside))
    for calls, size in work.gathered:
        seconds = seconds + calls * collectives.half_exchange(fabric, np.array([size]))[:, 0]
    return seconds


def buckets_of(work: Exchanged, changes: ExchangeChanges) -> tuple[float, ...]:
    """Bytes of each bucket after the changes, before compression.

    A cap that is asked for is the first bucket's, too: only where nobody names one does PyTorch begin with 1 MiB.
    """
    cap = changes.bucket_cap
    if cap is None or not work.gradients:
        return work.buckets
    return tuple(float(size) for size in timeline.bucket_sizes(work.gradients, cap, first=cap))


def times_of(work: Exchanged, changes: ExchangeChanges) -> float:
    """Exchanges of all buckets a step."""
    return work.times if changes.times is None else changes.times


def others(fabric: Fabric, work: Exchanged, backend: Backend) -> Array:
    """Seconds of the script's own collectives (SyncBatchNorm's, a metric's): each is waited for, ``[draws]``."""
    seconds = np.zeros(len(fabric.inside))
    for name, calls, size in work.others:
        seconds = seconds + calls * _call(name, fabric, size, backend)
    return seconds


def _call(name: str, fabric: Fabric, size: float, backend: Backend) -> Array:
    """One collective by its name in ``torch.distributed``, ``[draws]``."""
    sizes = np.array([size])
    if "all_gather" in name:
        return collectives.half_exchange(fabric, sizes * fabric.ranks)[:, 0]
    if "reduce_scatter" in name:
        return collectives.half_exchange(fabric, sizes)[:, 0]
    if "all_reduce" in name:
        return collectives.all_reduce(fabric, sizes, backend)[:, 0]
    return collectives.broadcast(fabric, sizes)[:, 0]
