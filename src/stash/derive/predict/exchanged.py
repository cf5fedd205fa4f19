"""What a job exchanges in a step, and what of that a fabric exposes: the model alone, held to no measurement.

Reads buckets, readiness and a script's own collectives out of a profile. Knows DistributedDataParallel; sharded
models have a module of their own. Buffers that DistributedDataParallel broadcasts and its map of unused parameters
are no part of a profile: they are small, and in what ``exchange`` carries over from the measurement.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stash.base.records import Profile
from stash.derive.predict import collectives, timeline
from stash.derive.predict.collectives import Algorithm, Fabric
from stash.derive.predict.draws import Array
from stash.derive.predict.target import Backend


@dataclass(frozen=True)
class Exchanged:
    """What one device exchanges in a step, and when."""

    buckets: tuple[float, ...]
    """Bytes, in the order in which they are reduced."""
    gradients: tuple[int, ...] = ()
    ready: tuple[float, ...] = ()
    """Seconds since the first gradient was, one for each, ascending; empty where nobody recorded it."""
    others: tuple[tuple[str, float, float], ...] = ()
    """Collectives that the script itself issues, and waits for: name, calls a step, bytes of each."""
    times: float = 1.0
    """Exchanges of all buckets a step: as many as batches, where a job accumulates and leaves none out."""


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


AS_MEASURED = ExchangeChanges()


def exchanged(profile: Profile) -> Exchanged | None:
    """What the profile's job exchanges; ``None`` if it says nothing of its gradients."""
    work = profile.workload
    sizes = tuple(gradient.bytes for gradient in work.gradients)
    buckets = work.bucket_bytes or ((sum(sizes),) if sizes else ())
    if not buckets and work.parameter_bytes:
        buckets = (work.parameter_bytes,)
    if not buckets:
        return None
    ready = tuple(g.ready_seconds for g in work.gradients if g.ready_seconds is not None)
    batches = max((loader.batches_per_step for loader in work.loaders), default=1)
    return Exchanged(
        buckets=tuple(float(size) for size in buckets),
        gradients=sizes,
        ready=ready if len(ready) == len(sizes) else (),
        others=tuple(
            (name, calls, work.collective_bytes_per_step.get(name, 0.0) / calls)
            for name, calls in work.collectives_per_step.items()
            if calls > 0
        ),
        times=float(batches) if work.skips_exchanges is False else 1.0,
    )


def bucket_times(fabric: Fabric, work: Exchanged, backend: Backend, changes: ExchangeChanges) -> Array:
    """Seconds that each bucket's exchange takes by itself, ``[draws, buckets]``."""
    sizes = np.array(buckets_of(work, changes)) * changes.compress
    return collectives.all_reduce(fabric, sizes, backend, changes.algorithm)


def alone(fabric: Fabric, work: Exchanged, backend: Backend, changes: ExchangeChanges) -> Array:
    """T: seconds of a step's whole exchange, nothing else going on, ``[draws]``."""
    each = bucket_times(fabric, work, backend, changes).sum(axis=1)
    everything: Array = each * times_of(work, changes) + others(fabric, work, backend)
    return everything


def exposed(
    fabric: Fabric, work: Exchanged, backend: Backend, changes: ExchangeChanges, hidden: Array | float = 0.0
) -> Array:
    """X: seconds of a step that this fabric's exchange lasts beyond the backward pass, ``[draws]``.

    Where nobody knows when buckets are ready, ``hidden`` seconds of it are behind the backward pass, and the last
    of several buckets never is: it is ready when the pass ends.
    """
    each = bucket_times(fabric, work, backend, changes)
    if work.ready:
        moments = timeline.bucket_readiness(work.gradients, work.ready, buckets_of(work, changes)) * changes.compute
        late = timeline.exposed(np.broadcast_to(moments, each.shape), each, changes.slowdown)
    else:
        never_hidden = each[:, -1] if each.shape[1] > 1 else np.zeros(len(each))
        late = np.maximum(each.sum(axis=1) - hidden, never_hidden)
    return late * times_of(work, changes) + others(fabric, work, backend)


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
