"""What a job exchanges in a step, and when it is ready to: read out of its profile.

Buckets, when they are ready, and a script's own collectives. Buffers that DistributedDataParallel broadcasts and its
map of unused parameters are no part of a profile: they are small, and in what ``stalls`` carries over from the
measurement.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from stash.base.records import Profile
from stash.base.records.profile import Workload
from stash.derive.predict.exchange import timeline

DEFAULT_BUCKET = 25 * timeline.MIB
"""Bytes: ``bucket_cap_mb`` of DistributedDataParallel, which a job that never exchanged would have."""
_GATHERED, _SCATTERED = "all_gather", "reduce_scatter"

Moments = tuple[tuple[float, ...], ...]
"""A row for each step that was looked at: seconds since its first gradient was ready, ascending."""


@dataclass(frozen=True)
class Exchanged:
    """What one device exchanges in a step, and when."""

    buckets: tuple[float, ...]
    """Bytes, in the order in which they are reduced; none of a job that shards its model itself."""
    gradients: tuple[int, ...] = ()
    gradients_ready: Moments = ()
    """When each gradient is; empty where nobody recorded it."""
    buckets_ready: Moments = ()
    """When each bucket is, laid out as it was; empty where nobody recorded it, and of other layouts."""
    others: tuple[tuple[str, float, float], ...] = ()
    """Collectives that the script itself issues, and waits for: name, calls a step, bytes of each."""
    gathered: tuple[tuple[float, float], ...] = ()
    """Gathers and scatters of a model that the job shards itself, in part behind compute: calls, bytes of each."""
    times: float = 1.0
    """Exchanges of all buckets a step: as many as batches, where a job accumulates and leaves none out."""

    @property
    def ready(self) -> bool:
        """Whether anybody knows when gradients are ready."""
        return bool(self.gradients_ready)

    @property
    def looks(self) -> int:
        """Steps whose readiness is known."""
        return len(self.gradients_ready)


def exchanged(profile: Profile) -> Exchanged | None:
    """What the profile's job exchanges; ``None`` if it says nothing of its gradients."""
    work = profile.workload
    sizes = tuple(gradient.bytes for gradient in work.gradients)
    batches = max((loader.batches_per_step for loader in work.loaders), default=1)
    if shards_itself(work):
        return _own_sharding(work, profile.world_size)
    ready = _gradients_ready(work)
    buckets: tuple[float, ...] = tuple(float(size) for size in work.bucket_bytes)
    if not buckets and sizes and profile.world_size == 1:  # it would have DistributedDataParallel's
        buckets = tuple(float(size) for size in timeline.bucket_sizes(sizes, DEFAULT_BUCKET))
    if not buckets and (sizes or work.parameter_bytes):
        buckets = (float(sum(sizes) or work.parameter_bytes or 0),)
    if not buckets:
        return None
    return Exchanged(
        buckets=buckets,
        gradients=sizes,
        gradients_ready=ready,
        buckets_ready=_buckets_ready(work) if ready else (),
        others=_others(work),
        times=float(batches) if work.skips_exchanges is False else 1.0,
    )


def shards_itself(work: Workload) -> bool:
    """Whether the job was seen to scatter its gradients over the ranks, and to have no buckets of them."""
    return not work.bucket_bytes and any(_SCATTERED in name for name in work.collectives_per_step)


def _own_sharding(work: Workload, ranks: int) -> Exchanged:
    """Of a job whose model is sharded already: what it hands to its gathers is a rank's part of what they gather."""
    calls = [(name, calls, size * (ranks if _GATHERED in name else 1)) for name, calls, size in _others(work)]
    own = tuple((many, size) for name, many, size in calls if _GATHERED in name or _SCATTERED in name)
    rest = tuple(call for call in _others(work) if _GATHERED not in call[0] and _SCATTERED not in call[0])
    return Exchanged(buckets=(), others=rest, gathered=own)


def _others(work: Workload) -> tuple[tuple[str, float, float], ...]:
    return tuple(
        (name, calls, work.collective_bytes_per_step.get(name, 0.0) / calls)
        for name, calls in work.collectives_per_step.items()
        if calls > 0
    )


def _gradients_ready(work: Workload) -> Moments:
    """Of every step that was looked at, or of the one that older profiles hold; ascending in each."""
    looks = [gradient.ready_steps for gradient in work.gradients]
    if looks and len({len(steps) for steps in looks}) == 1 and looks[0]:
        return _ascending(zip(*looks, strict=True))
    ready = [gradient.ready_seconds for gradient in work.gradients]
    known = tuple(moment for moment in ready if moment is not None)
    return _ascending([known]) if known and len(known) == len(ready) else ()


def _buckets_ready(work: Workload) -> Moments:
    looks = [bucket.ready_steps for bucket in work.buckets]
    same = tuple(bucket.bytes for bucket in work.buckets) == work.bucket_bytes
    if not same or len({len(steps) for steps in looks}) != 1 or not looks[0]:
        return ()
    return _ascending(zip(*looks, strict=True))


def _ascending(looks: Iterable[Sequence[float]]) -> Moments:
    """Buckets go in order: what is ready before one in front of it waits for that."""
    return tuple(tuple(np.maximum.accumulate(np.asarray(each, np.float64)).tolist()) for each in looks)
