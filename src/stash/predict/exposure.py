"""What a job exchanges in a step, read out of its profile, and what of that a fabric exposes.

Buckets, when they are ready, and a script's own collectives. Buffers that DistributedDataParallel broadcasts and its
map of unused parameters are no part of a profile: they are small, and in what ``exchange_stalls`` carries over from
the measurement. The model is held to no measurement here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from stash.core.records.profile import Profile, Workload
from stash.predict import collective_times, timeline
from stash.predict.cluster import Backend
from stash.predict.collective_times import Fabric
from stash.predict.draws import Array

DEFAULT_BUCKET = 25 * timeline.MIB
"""Bytes: ``bucket_cap_mb`` of DistributedDataParallel, which a job that never exchanged would have."""
_GATHERED, _SCATTERED = "all_gather", "reduce_scatter"

Moments = tuple[tuple[float, ...], ...]
"""A row for each step that was looked at: seconds since its first gradient was ready, ascending."""


@dataclass(frozen=True)
class StepExchange:
    """What one device exchanges in a step, and when."""

    buckets: tuple[float, ...]
    """Bytes, in the order in which they are reduced; none of a job that shards its model itself."""
    gradients: tuple[int, ...] = ()
    gradients_ready: Moments = ()
    """When each gradient is; empty where it was not recorded."""
    buckets_ready: Moments = ()
    """When each bucket is, laid out as it was; empty where it was not recorded, and of other layouts."""
    others: tuple[tuple[str, float, float], ...] = ()
    """Collectives that the script itself issues, and waits for: name, calls a step, bytes of each."""
    gathered: tuple[tuple[float, float], ...] = ()
    """Gathers and scatters of a model that the job shards itself, in part behind compute: calls, bytes of each."""
    times: float = 1.0
    """Exchanges of all buckets a step: as many as batches, where a job accumulates and leaves none out."""

    @property
    def is_ready_known(self) -> bool:
        """Whether it is known when gradients are ready."""
        return bool(self.gradients_ready)

    @cached_property
    def moments(self) -> Array:
        """When each bucket is ready in each step that was looked at, ``[steps, buckets]`` in seconds."""
        return (
            _moments(self, self.buckets) if not self.buckets_ready else np.array(self.buckets_ready)
        )


def exchange_of(profile: Profile) -> StepExchange | None:
    """What the profile's job exchanges; ``None`` if it says nothing of its gradients."""
    work = profile.workload
    others = tuple(
        (name, calls, work.collective_bytes_per_step.get(name, 0.0) / calls)
        for name, calls in work.collectives_per_step.items()
        if calls > 0
    )
    if shards_itself(work):
        # What such a job hands to its gathers is a rank's part of what they gather.
        gathered = tuple(
            (calls, size * (profile.world_size if _GATHERED in name else 1))
            for name, calls, size in others
            if _GATHERED in name or _SCATTERED in name
        )
        rest = tuple(
            call for call in others if _GATHERED not in call[0] and _SCATTERED not in call[0]
        )
        return StepExchange(buckets=(), others=rest, gathered=gathered)
    sizes = tuple(gradient.bytes for gradient in work.gradients)
    ready = _rows_by_step([gradient.ready_steps for gradient in work.gradients])
    seconds = [
        gradient.ready_seconds for gradient in work.gradients if gradient.ready_seconds is not None
    ]
    if not ready and len(seconds) == len(work.gradients):  # older profiles hold one step
        ready = _rows_by_step([(each,) for each in seconds])
    as_laid_out = tuple(bucket.bytes for bucket in work.buckets) == work.bucket_bytes
    batches = max((loader.batches_per_step for loader in work.loaders), default=1)
    buckets: tuple[float, ...] = tuple(float(size) for size in work.bucket_bytes)
    if not buckets and sizes and profile.world_size == 1:  # it would have DistributedDataParallel's
        buckets = tuple(float(size) for size in timeline.bucket_sizes(sizes, DEFAULT_BUCKET))
    if not buckets and (sizes or work.parameter_bytes):
        buckets = (float(sum(sizes) or work.parameter_bytes or 0),)
    if not buckets:
        return None
    return StepExchange(
        buckets=buckets,
        gradients=sizes,
        gradients_ready=ready,
        buckets_ready=_rows_by_step([bucket.ready_steps for bucket in work.buckets])
        if ready and as_laid_out
        else (),
        others=others,
        times=float(batches) if work.skips_exchanges is False else 1.0,
    )


def shards_itself(work: Workload) -> bool:
    """Whether the job was seen to scatter its gradients over the ranks, and to have no buckets of them."""
    return not work.bucket_bytes and any(_SCATTERED in name for name in work.collectives_per_step)


def _rows_by_step(ready: Sequence[Sequence[float]]) -> Moments:
    """Of each gradient's or bucket's moments a row for each step; empty unless all were seen in as many steps.

    Buckets go in order: what is ready before one in front of it waits for that.
    """
    if not ready or not ready[0] or len({len(steps) for steps in ready}) != 1:
        return ()
    return tuple(
        tuple(np.maximum.accumulate(np.asarray(each, np.float64)).tolist())
        for each in zip(*ready, strict=True)
    )


# What a fabric exposes of it


@dataclass(frozen=True)
class ExchangeChanges:
    """What of the exchange is not as it was profiled."""

    bucket_cap: float | None = None
    """Bytes; ``None`` keeps the buckets."""
    compress: float = 1.0
    """Bytes that travel, of those that did."""
    times: float | None = None
    """Exchanges a step; ``None`` keeps them."""
    compute: float = 1.0
    """Of the backward pass's length as profiled."""


AS_MEASURED = ExchangeChanges()


@lru_cache(maxsize=8)
def bucket_times(
    fabric: Fabric, work: StepExchange, backend: Backend, changes: ExchangeChanges
) -> Array:
    """Seconds that each bucket's exchange takes by itself, ``[draws, buckets]``."""
    sizes = np.array(buckets_of(work, changes)) * changes.compress
    return collective_times.all_reduce(fabric, sizes, backend)


def exchange_seconds(
    fabric: Fabric, work: StepExchange, backend: Backend, changes: ExchangeChanges
) -> Array:
    """T: seconds of a step's whole exchange, nothing else going on, ``[draws]``."""
    together = bucket_times(fabric, work, backend, changes).sum(axis=1) * exchanges_per_step(
        work, changes
    )
    everything: Array = (
        together + _own_gathers(fabric, work) + other_collective_seconds(fabric, work, backend)
    )
    return everything


def exposed_seconds(
    fabric: Fabric,
    work: StepExchange,
    backend: Backend,
    changes: ExchangeChanges,
    hidden: Array | float = 0.0,
) -> Array:
    """X: seconds of a step that this fabric's exchange lasts beyond the backward pass, ``[draws]``.

    Of several steps whose readiness is known it is their mean. Where it is unknown when buckets are ready, ``hidden``
    seconds of it are behind the backward pass, and the last of several buckets never is: it is ready when the pass
    ends.
    """
    each = bucket_times(fabric, work, backend, changes)
    if work.is_ready_known:
        moments = moments_of(work, changes) * changes.compute
        every = [
            timeline.exposed_seconds(np.broadcast_to(row, each.shape), each) for row in moments
        ]
        late = np.mean(every, axis=0)
    else:
        never_hidden = each[:, -1] if each.shape[1] > 1 else np.zeros(len(each))
        late = np.maximum(each.sum(axis=1) + _own_gathers(fabric, work) - hidden, never_hidden)
    waited: Array = late * exchanges_per_step(work, changes) + other_collective_seconds(
        fabric, work, backend
    )
    return waited


SHOWN = (0.5, 1.0)
"""Of what a timeline hides behind the backward pass, the share that shows all the same, where the exchange's kernels
share the device with the model's (NCCL) and no measurement holds the forecast: between these. Published steps grow as
if next to nothing were hidden (``python -m bench.predict.published``); the testbed's exchange (gloo) hides as told.
"""
TAKEN_UP = 4e9
"""Bytes per second of an exchange up to which it shows in proportion only: one that waits for sockets leaves the
device to the model most of the time. Of BERT on T4s over TCP three quarters of what could hide did, at 0.4 GB/s."""


def shown_seconds(late: Array, alone: Array, rate: Array, uniforms: Array) -> Array:
    """Seconds exposed, of a timeline's ``late`` and the exchange by itself over links of this ``rate``, ``[draws]``
    each; see ``SHOWN``. Faster links never make it longer: what shows of hidden bytes is up to ``TAKEN_UP`` the same.
    """
    share = (SHOWN[0] + (SHOWN[1] - SHOWN[0]) * uniforms) * np.minimum(1.0, rate / TAKEN_UP)
    exposed: Array = late + share * np.maximum(0.0, alone - late)
    return exposed


def payload_seconds(fabric: Fabric, work: StepExchange, changes: ExchangeChanges) -> Array:
    """Seconds of a step's gradients, or of what a model sharded by its job sends, over the narrowest link, nothing of
    it hidden, ``[draws]``."""
    halves = sum(calls * size for calls, size in work.gathered)
    together: Array = collective_times.payload_seconds(
        fabric, sum(buckets_of(work, changes)) * changes.compress
    )
    return together * exchanges_per_step(work, changes) + collective_times.payload_seconds(
        fabric, halves / 2
    )


def moments_of(work: StepExchange, changes: ExchangeChanges) -> Array:
    """When each bucket is ready in each step that was looked at, ``[steps, buckets]`` in seconds."""
    return work.moments if changes.bucket_cap is None else _moments(work, buckets_of(work, changes))


def _moments(work: StepExchange, buckets: Sequence[float]) -> Array:
    return np.array(
        [timeline.bucket_readiness(work.gradients, each, buckets) for each in work.gradients_ready]
    )


def _own_gathers(fabric: Fabric, work: StepExchange) -> Array:
    """Seconds of all gathers and scatters of a model that the job shards itself, ``[draws]``."""
    seconds = np.zeros(len(fabric.inside))
    for calls, size in work.gathered:
        seconds = seconds + calls * collective_times.half_exchange(fabric, np.array([size]))[:, 0]
    return seconds


def buckets_of(work: StepExchange, changes: ExchangeChanges) -> tuple[float, ...]:
    """Bytes of each bucket after the changes, before compression.

    A cap that is asked for is the first bucket's, too: only where none is named does PyTorch begin with 1 MiB.
    """
    cap = changes.bucket_cap
    if cap is None or not work.gradients:
        return work.buckets
    return tuple(float(size) for size in timeline.bucket_sizes(work.gradients, cap, first=cap))


def exchanges_per_step(work: StepExchange, changes: ExchangeChanges) -> float:
    """Exchanges of all buckets a step."""
    return work.times if changes.times is None else changes.times


def other_collective_seconds(fabric: Fabric, work: StepExchange, backend: Backend) -> Array:
    """Seconds of the script's own collectives (SyncBatchNorm's, a metric's): each is waited for, ``[draws]``."""
    seconds = np.zeros(len(fabric.inside))
    for name, calls, size in work.others:
        sizes = np.array([size])
        if "all_gather" in name:
            each = collective_times.half_exchange(fabric, sizes * fabric.ranks)
        elif "reduce_scatter" in name:
            each = collective_times.half_exchange(fabric, sizes)
        elif "all_reduce" in name:
            each = collective_times.all_reduce(fabric, sizes, backend)
        else:
            each = collective_times.broadcast(fabric, sizes)
        seconds = seconds + calls * each[:, 0]
    return seconds
