"""The data stalls of a forecast: prep and fetch of a pipeline set up in another way, for a step that trains
otherwise.

What the model does not explain of the measured stalls is kept: it belongs to fresh batches as such (copies, pinning,
cold caches) and grows with the samples of a step, no matter who makes them. So a forecast of the measured set-up is
the measurement, draw by draw. Error: ``docs/validation.md``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stash.derive.predict.draws import Array, Draws
from stash.derive.predict.loading import Loading
from stash.derive.predict.pipeline import Pipeline, misses, step_seconds
from stash.derive.stalls.breakdown import Breakdown


@dataclass(frozen=True, eq=False)
class Unexplained:
    """Seconds per sample and rank that the model leaves over of each measured stall, ``[draws]``."""

    prep: Array
    fetch: Array | None
    """``None`` where fetch was not measured."""


def unexplained(loading: Loading, breakdown: Breakdown, draws: Draws, trained_in: Array) -> Unexplained:
    """What is left of the measured stalls, for the measured step without data stalls ``trained_in``."""
    samples = loading.pipeline.batches * loading.pipeline.samples
    prep = breakdown.stall("prep")
    assert prep is not None, "loading() needs it"
    left = draws.around("measured prep", prep.time) - prep_seconds(loading.pipeline, loading, trained_in)
    fetch = breakdown.stall("fetch")
    left_of_fetch = None
    if fetch is not None:
        cold = loading.pipeline.reading(0.0)
        left_of_fetch = draws.around("measured fetch", fetch.time) - fetch_seconds(cold, loading, trained_in)
        left_of_fetch = left_of_fetch / samples
    return Unexplained(left / samples, left_of_fetch)


def prep_seconds(pipeline: Pipeline, loading: Loading, trained_in: Array) -> Array:
    """Seconds a step waits for batches to be made, files in memory, by the model alone."""
    return step_seconds(pipeline.reading(1.0), loading.work, trained_in) - trained_in


def fetch_seconds(pipeline: Pipeline, loading: Loading, trained_in: Array) -> Array:
    """Seconds more that it waits as what is not in memory comes from storage, by the model alone."""
    in_memory = step_seconds(pipeline.reading(1.0), loading.work, trained_in)
    return step_seconds(pipeline, loading.work, trained_in) - in_memory


def predicted(
    pipeline: Pipeline, loading: Loading, left: Unexplained, trained_in: Array
) -> tuple[Array, Array | None]:
    """Prep and fetch of a step on ``pipeline``, in seconds, ``[draws]``; fetch is ``None`` where it was not measured.

    What was left over of fetch is of the reads, so it shrinks with their share.
    """
    samples = pipeline.batches * pipeline.samples
    prep = prep_seconds(pipeline, loading, trained_in) + samples * left.prep
    if left.fetch is None:
        return prep, None
    extra = samples * misses(pipeline) * left.fetch
    return prep, fetch_seconds(pipeline, loading, trained_in) + extra


@dataclass(frozen=True)
class Suffices:
    """DS-Analyzer's three questions (VLDB 2021, section 3.4), answered for one set-up; ``None``: cannot be had so."""

    cores_per_rank: float | None
    """Cores that make samples as fast as devices train them: c per sample over t per sample."""
    workers: int | None
    """Workers of a rank that do, if there are cores for them."""
    cached: float | None
    """Least share of the data set in memory at which storage keeps up with the rest; 0: it does without."""
    disk_bytes_per_second: float | None
    """From a node's storage, beyond which a faster one does not help; ``None`` where nothing was ever fetched."""
    device_rate: float
    """G: samples per second of the job, if no data were waited for."""
    prep_rate: float
    """P."""
    fetch_rate: float | None
    """F."""

    @property
    def baseline(self) -> float:
        """DS-Analyzer's prediction in samples per second: min(F, P, G)."""
        return min(rate for rate in (self.device_rate, self.prep_rate, self.fetch_rate) if rate is not None)


_MOST_WORKERS = 256
_SHARES = 101
_HEADROOM = 1.05
"""Workers are asked for with this margin over what the mean needs, as batches take unlike times."""


def what_suffices(pipeline: Pipeline, loading: Loading, trained_in: float, nodes: int) -> Suffices:
    """The answers for a step that trains for ``trained_in`` seconds; by means, without intervals."""
    work, ranks = loading.work, pipeline.ranks
    samples = pipeline.batches * pipeline.samples
    per_sample = trained_in / samples
    make, core = float(np.mean(work.make_seconds)), float(np.mean(work.core_seconds))
    workers = int(np.ceil(_HEADROOM * make / per_sample))
    everyone = ranks * nodes
    limit = make / max(1, pipeline.workers)
    if pipeline.cores is not None:
        limit = max(limit, ranks * core / float(np.mean(pipeline.cores)))
    slower = max(per_sample, limit)
    fetch_rate, needed, cached = None, None, None
    if pipeline.store is not None and work.disk_bytes:
        read = float(np.mean(pipeline.store.seconds(work.disk_bytes, work.reads or 0.0)))
        needed = ranks * work.disk_bytes / slower
        alone = max((make + read) / max(1, pipeline.workers), ranks * read, limit)
        fetch_rate = everyone / alone
        shares = np.linspace(0, 1, _SHARES)
        missing = misses(pipeline.reading(shares[:, None], pipeline.store)).mean(axis=1)
        enough = shares[ranks * read * missing <= slower * (1 + 1e-9)]
        cached = float(enough[0]) if len(enough) else None
    return Suffices(
        cores_per_rank=core / per_sample,
        workers=workers if workers <= _MOST_WORKERS else None,
        cached=cached,
        disk_bytes_per_second=needed,
        device_rate=everyone / per_sample,
        prep_rate=everyone / limit,
        fetch_rate=fetch_rate,
    )
