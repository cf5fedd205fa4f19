"""What suffices for data not to be waited for: cores, workers, cache and disk, as DS-Analyzer asks.

By means and without intervals; of a job's pipeline as it is, or changed. Forecasts and advice ask the same function.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from stash.analysis.step_times import count_readers
from stash.core.ladder import DATA_STALLS
from stash.predict.changed_job import ChangedJob
from stash.predict.forecasting import job_stalls
from stash.predict.loading import Loading
from stash.predict.pipeline import Pipeline, Work, sending_seconds, take_over_seconds

ENOUGH = 1.05
"""Supply that takes this much longer than the rest of a step is enough."""
_MAX_WORKERS = 256
_SHARES = 101
_HEADROOM = 1.05
"""Workers are asked for with this margin over what the mean needs, as batches take unlike times."""


@dataclass(frozen=True)
class Sufficiency:
    """DS-Analyzer's three questions (VLDB 2021, section 3.4), answered for one set-up; ``None``: cannot be had so."""

    cores_per_rank: float | None
    """Cores that make samples as fast as devices train them: c per sample over t per sample."""
    workers: int | None
    """Workers of a rank that do, if there are cores for them."""
    workers_now: int
    """That it has, with the changes."""
    trained_seconds: float
    """Of a step, if no data were waited for."""
    made_seconds: float
    """Of one worker, for the samples of a rank's step."""
    cores_seconds: float | None
    """Of a step that is as short as the node's cores can train and make its samples; ``None``: cores are unknown."""
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
        return min(
            rate for rate in (self.device_rate, self.prep_rate, self.fetch_rate) if rate is not None
        )

    @property
    def lacks_cores(self) -> bool:
        """Whether the node's cores, and not the number of workers, keep steps from being as short as they train."""
        return self.cores_seconds is not None and self.cores_seconds > ENOUGH * self.trained_seconds

    @property
    def workers_to_use(self) -> int | None:
        """Those that suffice or, where cores do not, those beyond which cores are the limit; ``None``: too many.

        A worker that waits (for a disk, a network) takes no core while it does: their processor time counts.
        """
        if not self.lacks_cores or self.cores_seconds is None:
            return self.workers
        return max(1, math.ceil(round(self.made_seconds / self.cores_seconds, 6)))


def assess_sufficiency(
    job: ChangedJob, less: Mapping[str, float] | None = None
) -> Sufficiency | None:
    """DS-Analyzer's questions for the job as it is changed; ``None`` where its pipeline is unknown.

    ``less`` is that of ``what_if``.
    """
    loading = job.base.loading
    if loading is None or job.mesh is not None:
        return None
    drawn, pipeline = job_stalls(job, less), _pipeline_alone(job)
    trains = math.fsum(
        float(part.seconds.mean()) for part in drawn.parts if part.name not in DATA_STALLS
    )
    found = compute_sufficiency(
        pipeline, loading, trains, count_readers(job.base.profile, job.target.ranks)
    )
    if pipeline.cores is None or found.workers is None or found.workers == pipeline.workers:
        return found
    # of so many workers, as few threads do not keep all cores busy
    wide = _pipeline_alone(replace(job, workers=found.workers))
    return replace(found, cores_seconds=_cores_seconds(wide, loading.work))


def _pipeline_alone(job: ChangedJob) -> Pipeline:
    """Its pipeline, training as it was measured."""
    assert job.pipeline is not None, "a job with a loader"
    return replace(job.pipeline, training=1.0)


def _cores_seconds(pipeline: Pipeline, work: Work) -> float | None:
    """Of a step, if the node's cores did nothing but train and make its samples."""
    if pipeline.cores is None:
        return None
    made = pipeline.batches * pipeline.samples * work.core_seconds
    return float(
        np.mean(
            pipeline.ranks * (pipeline.training * work.train_core_seconds + made) / pipeline.cores
        )
    )


def compute_sufficiency(
    pipeline: Pipeline, loading: Loading, trained_in: float, everyone: float
) -> Sufficiency:
    """The answers for a step of ``trained_in`` seconds in which ``everyone`` reads; by means, without intervals."""
    work, ranks = loading.work, pipeline.ranks
    samples = pipeline.batches * pipeline.samples
    per_sample = trained_in / samples
    with_workers = replace(pipeline, workers=max(1, pipeline.workers))
    handed = float(np.mean(sending_seconds(with_workers, work))) / pipeline.samples
    taken_over = float(np.mean(take_over_seconds(with_workers, work))) / samples
    make, core = float(np.mean(work.make_seconds)), float(np.mean(work.core_seconds))
    workers = int(np.ceil(_HEADROOM * (make + handed) / (per_sample + taken_over)))
    limit = make / max(1, pipeline.workers)
    if pipeline.cores is not None:
        limit = max(limit, ranks * core / float(np.mean(pipeline.cores)))
    slower = max(per_sample, limit)
    fetch_rate, needed, cached = None, None, None
    if pipeline.store is not None and work.disk_bytes:
        read = float(np.mean(work.disk_bytes / pipeline.store))
        room = min(max(1, pipeline.workers) * slower * ENOUGH - make, slower * ENOUGH / ranks)
        needed = work.disk_bytes / room if room > 0 else None
        alone = max((make + read) / max(1, pipeline.workers), ranks * read, limit)
        fetch_rate = everyone / alone
        shares = np.linspace(0, 1, _SHARES)
        missing = pipeline.replace_cache(shares[:, None], pipeline.store).misses.mean(axis=1)
        supplied = np.maximum(
            (make + read * missing) / max(1, pipeline.workers), ranks * read * missing
        )
        enough = shares[supplied <= slower * ENOUGH]
        cached = float(enough[0]) if len(enough) else None
    return Sufficiency(
        cores_per_rank=core / per_sample,
        workers=workers if workers <= _MAX_WORKERS else None,
        workers_now=pipeline.workers,
        trained_seconds=trained_in,
        made_seconds=make * samples,
        cores_seconds=_cores_seconds(pipeline, work),
        cached=cached,
        disk_bytes_per_second=needed,
        device_rate=everyone / per_sample,
        prep_rate=everyone / limit,
        fetch_rate=fetch_rate,
    )
