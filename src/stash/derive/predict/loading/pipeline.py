"""The data pipeline of a node: what its loaders can supply, and the step that trains on it.

A queueing model of workers, cores and storage that all ranks of a node share. DS-Analyzer (VLDB 2021) takes min(F, P,
G); here P depends on workers and on what cores they find, F on the page cache and on what storage and network
deliver, and the three meet in ``queueing``. Times are draws, ``[draws]``; knows nothing of profiles or of how facts
were measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from stash.derive.predict.loading.page_cache import page_cache_hits
from stash.derive.predict.loading.queueing import step_with_loader
from stash.derive.predict.uncertainty.draws import Array, Draws


@dataclass(frozen=True, eq=False)
class Work:
    """What samples cost, whoever makes them: draws, ``None`` where nobody knows."""

    make_seconds: Array
    """Of one worker for one sample, with its files in memory and a core of its own."""
    core_seconds: Array
    """Of those, on a core."""
    train_core_seconds: Array
    """That training itself takes of the node's cores, for one step of one rank."""
    disk_bytes: float | None = None
    """Fetched from storage for a sample that is not in memory."""
    reads: float | None = None
    """Requests for it."""
    variation: float = 0.0
    """Of the time to make a batch: standard deviation over mean."""


@dataclass(frozen=True, eq=False)
class SampleStore:
    """Where samples lie, as one node sees it: draws, ``None`` where there is no such limit."""

    bytes_per_second: Array
    """Of all readers of the node together."""
    reads_per_second: Array | None = None
    latency_seconds: Array | float = 0.0
    """Of one request, before its first byte."""
    stream_bytes_per_second: Array | None = None
    """Of one request from then on, as of an object store; ``None``: one reader can have all of it."""

    def seconds(self, size: float, reads: float) -> Array:
        """That storage is busy with so many bytes in so many requests: whichever limit is hit first."""
        busy = size / self.bytes_per_second
        return busy if self.reads_per_second is None else np.maximum(busy, reads / self.reads_per_second)

    def seconds_of_one(self, size: float, reads: float) -> Array:
        """That one reader waits for so many bytes in so many requests, one after the other, with nobody beside it."""
        streamed = self.seconds(size, reads)
        if self.stream_bytes_per_second is not None:
            streamed = np.maximum(streamed, size / self.stream_bytes_per_second)
        return streamed + reads * self.latency_seconds


@dataclass(frozen=True, eq=False)
class Pipeline:
    """How the loaders of one node are set up."""

    ranks: int
    """On the node: they share cores and storage."""
    workers: int
    """Of one rank."""
    prefetch: int
    """Batches that each worker prepares ahead."""
    samples: float
    """Of one batch of one rank."""
    batches: int
    """Of one step."""
    cores: Array | None = None
    """What the node's hardware threads are worth with all of them busy, in cores; ``None``: unknown, and no limit."""
    store: SampleStore | None = None
    cached: float | Array = 1.0
    """Share of the data set that fits into the node's page cache."""
    keeps: float | Array = 1.0
    """How well the page cache keeps it, see ``page_cache``."""
    training: float | Array = 1.0
    """Times what training took of the cores when that was measured."""

    def reading(self, cached: float | Array, store: SampleStore | None = None) -> Pipeline:
        """The same with another part of the data in memory."""
        return replace(self, cached=cached, store=store or self.store)


def misses(pipeline: Pipeline) -> Array:
    """Share of samples that are fetched from storage."""
    cached = np.asarray(pipeline.cached, np.float64)
    return 1.0 - page_cache_hits(cached, np.asarray(pipeline.keeps, np.float64))


def supply_seconds(pipeline: Pipeline, work: Work) -> Array:
    """Between two batches of one rank, as its loader supplies them while nobody else limits it.

    W workers that each take w for making a batch and r for its bytes finish one every (w + r)/W seconds; the node's
    storage is busy with it for d and serves all R ranks, R·d; its cores too, R·c/C for c core seconds a batch.
    Whichever is longest holds: the asymptotic bounds of a closed queueing network (Denning and Buzen 1978), which it
    nears from below. Of an object store r is more than d: every request has its latency and a stream's rate.
    """
    made_in, missed = pipeline.samples * work.make_seconds, misses(pipeline) * pipeline.samples
    alone, shared = made_in / max(1, pipeline.workers), np.zeros_like(made_in)
    if pipeline.store is not None and work.disk_bytes is not None:
        size, reads = work.disk_bytes, work.reads or 1.0
        alone = (made_in + missed * pipeline.store.seconds_of_one(size, reads)) / max(1, pipeline.workers)
        shared = pipeline.ranks * missed * pipeline.store.seconds(size, reads)
    shared = np.maximum(alone, shared)
    if pipeline.cores is None:
        return shared
    return np.maximum(shared, pipeline.ranks * pipeline.samples * work.core_seconds / pipeline.cores)


def step_seconds(pipeline: Pipeline, work: Work, trained_in: Array) -> Array:
    """Of a step that takes ``trained_in`` when no data are waited for.

    Never less than what the node's cores need for training and making batches together: that is what slows a job
    whose workers take cores from its training, and no queue tells.
    """
    ranks, batches = pipeline.ranks, pipeline.batches
    queued = batches * step_with_loader(
        trained_in / batches,
        supply_seconds(pipeline, work),
        pipeline.workers,
        pipeline.prefetch,
        ranks,
        work.variation,
    )
    if pipeline.cores is None:
        return queued
    made = batches * pipeline.samples * work.core_seconds
    trained = pipeline.training * work.train_core_seconds
    return np.maximum(queued, ranks * (trained + made) / pipeline.cores)


SUPPLY_SPREAD = 0.10
"""Standard deviation of the logarithm of what workers supply with other workers or cores than measured, over what is
said: of half of Synergy's published models (``bench.predict.cpu_sensitivity.supply_spread``), which validate
nothing."""


def less_sure(work: Work, draws: Draws) -> Work:
    """The same work, of a pipeline with other workers or cores than those on which it was measured."""
    error = np.exp(SUPPLY_SPREAD * draws.normals("error of the supply model") - SUPPLY_SPREAD**2 / 2)
    return replace(work, make_seconds=work.make_seconds * error, core_seconds=work.core_seconds * error)


SMT_GAIN = (0.16, 0.30)
"""What the second hardware thread of a busy core adds: 16 to 28 % on server programs, up to 30 % (D. Marr and others,
*Hyper-Threading Technology Architecture and Microarchitecture*, Intel Technology Journal 6(1), 2002)."""


def core_capacity(threads: float, busy: float, threads_per_core: int, gain: Array | float) -> Array:
    """What ``busy`` runnable threads get done on so many hardware threads, in cores' worth of work.

    One per core first; then second threads, each worth ``gain`` of a core; beyond all of them nothing is gained.
    """
    cores = threads / threads_per_core
    first = min(busy, cores)
    return np.asarray(first + np.asarray(gain) * max(0.0, min(busy, threads) - cores), np.float64)
