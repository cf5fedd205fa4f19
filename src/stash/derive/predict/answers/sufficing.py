"""What suffices for data not to be waited for: cores, workers, cache and disk, as DS-Analyzer asks.

By means and without intervals; of a job's pipeline as it is, or changed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stash.base.ladder import DATA_STALLS
from stash.derive.predict.loading.measured import Loading
from stash.derive.predict.loading.pipeline import Pipeline, misses
from stash.derive.predict.whatif.base import Base
from stash.derive.predict.whatif.changes import Alteration
from stash.derive.predict.whatif.data import pipeline_of
from stash.derive.predict.whatif.forecasting import AS_IT_IS, what_if
from stash.derive.predict.whatif.passes import passes


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


ENOUGH = 1.05
"""Supply that takes this much longer than the rest of a step is enough."""
_MOST_WORKERS = 256
_SHARES = 101
_HEADROOM = 1.05
"""Workers are asked for with this margin over what the mean needs, as batches take unlike times."""


def suffices(base: Base, wanted: Alteration = AS_IT_IS) -> Suffices | None:
    """DS-Analyzer's questions for the job with these changes; ``None`` where its pipeline is unknown."""
    if base.loading is None:
        return None
    told = what_if(base, wanted)
    after = passes(base.profile, base.breakdown, wanted)
    pipeline = pipeline_of(base, base.loading, told.target, wanted, after)
    trains = told.breakdown.step_seconds - told.breakdown.seconds(*DATA_STALLS)
    return what_suffices(pipeline, base.loading, trains, told.target.nodes)


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
        reads = work.reads or 1.0
        read = float(np.mean(pipeline.store.seconds(work.disk_bytes, reads)))
        alone_in = float(np.mean(pipeline.store.seconds_of_one(work.disk_bytes, reads)))
        waits = alone_in - read  # of one reader: no faster disk takes it away
        room = min(max(1, pipeline.workers) * slower * ENOUGH - make - waits, slower * ENOUGH / ranks)
        needed = work.disk_bytes / room if room > 0 else None
        alone = max((make + alone_in) / max(1, pipeline.workers), ranks * read, limit)
        fetch_rate = everyone / alone
        shares = np.linspace(0, 1, _SHARES)
        missing = misses(pipeline.reading(shares[:, None], pipeline.store)).mean(axis=1)
        supplied = np.maximum((make + alone_in * missing) / max(1, pipeline.workers), ranks * read * missing)
        enough = shares[supplied <= slower * ENOUGH]
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
