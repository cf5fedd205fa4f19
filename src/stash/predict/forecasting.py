"""What a profiled job's step would be with other machines or settings: changes in, forecast out.

Each stall comes from its own model, held to what was measured of it, in the ladder's order: what trains, what is
waited for, what is read. Without changes the forecast is the measurement. Knows how the models meet; every formula is
theirs. Speed and error: ``docs/how-we-know.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from stash.analysis.attribution import attribute
from stash.analysis.breakdown import Breakdown, Missing
from stash.analysis.disturbance import remove_disturbance
from stash.analysis.step_times import count_readers
from stash.catalog.offers import Catalog
from stash.core.errors import UserError
from stash.core.ladder import DATA_STALLS
from stash.core.records.profile import Profile
from stash.predict.changed_job import ChangedJob, change_job
from stash.predict.changed_stalls import (
    predict_data_stalls,
    predict_training_stalls,
    training_seconds,
)
from stash.predict.changes import AS_IT_IS, Alteration
from stash.predict.cluster import Target
from stash.predict.cluster_sources import target_of_profile
from stash.predict.draws import Draws
from stash.predict.exchange_stalls import ExchangeModel
from stash.predict.forecast import Forecast, PredictedStall, PredictedStalls, StallDraws, forecast
from stash.predict.loading import calibrate_loading, loading_of
from stash.predict.passes import Base, measured_stalls, passes_of
from stash.predict.pipelining import add_bubble


@lru_cache(maxsize=1)
def shipped_catalog() -> Catalog:
    """Only the facts that come with Stash."""
    from stash.catalog.layers import merge  # most profiles are read without a price

    return merge(None, None)


def refuse_cluster_file(name: str) -> Target:
    """Refuse: files of clusters are read elsewhere."""
    raise UserError(f"--cluster {name}: files of clusters are read by `stash whatif` only")


def base_of(
    profile: Profile,
    breakdown: Breakdown | None = None,
    draws: Draws | None = None,
    catalog: Callable[[], Catalog] = shipped_catalog,
    clusters: Callable[[str], Target] = refuse_cluster_file,
) -> Base:
    """What forecasts from ``profile`` start with; raises StashError if it has no complete round."""
    profile = remove_disturbance(profile).profile
    breakdown, draws = breakdown or attribute(profile), draws or Draws()
    done = passes_of(profile, breakdown)
    pipeline = loading_of(profile, breakdown, draws)
    target = target_of_profile(profile)
    exchange = ExchangeModel(profile, breakdown, target, draws)
    base = Base(
        profile, breakdown, target, draws, done, exchange, pipeline, None, catalog, clusters
    )
    if pipeline is None:
        return base
    trains = training_seconds(predict_training_stalls(change_job(base)))
    return replace(base, held=calibrate_loading(pipeline, breakdown, draws, trains))


def what_if(
    base: Base, wanted: Alteration = AS_IT_IS, less: Mapping[str, float] | None = None
) -> Forecast:
    """The forecast of the profiled job with these changes; raises UserError if they cannot be made, or predicted.

    ``less`` takes seconds off stalls, by name: how a step is once something else made them smaller.
    """
    return forecast_of(base, stall_draws(base, wanted, less))


def forecast_of(base: Base, drawn: StallDraws) -> Forecast:
    """The forecast of stalls drawn from ``base``."""
    return forecast(
        drawn.target,
        drawn.parts,
        drawn.missing,
        drawn.samples,
        source=f"a forecast from {base.breakdown.source}",
        repetitions=base.breakdown.repetitions,
        seed=base.draws.seed,
    )


def stall_draws(
    base: Base, wanted: Alteration = AS_IT_IS, less: Mapping[str, float] | None = None
) -> StallDraws:
    """What ``what_if`` makes its forecast of: for whoever computes on with every draw. Raises UserError likewise."""
    return job_stalls(change_job(base, wanted), less)


def job_stalls(job: ChangedJob, less: Mapping[str, float] | None = None) -> StallDraws:
    """The same of a job whose changes were read; raises UserError for a mesh or a pipeline that cannot be so."""
    base, target = job.base, job.target
    if job.unchanged and not less:
        parts = measured_stalls(base, [stall.name for stall in base.breakdown.stalls])
        return StallDraws(
            target, tuple(parts), base.breakdown.skipped, base.breakdown.samples_per_step
        )
    if job.mesh is not None:
        from stash.predict.mesh import mesh_stalls

        drawn = mesh_stalls(base, target, job.mesh)
        return replace(drawn, parts=tuple(_subtract_seconds(drawn.parts, less)))
    outcome = add_bubble(job, predict_training_stalls(job))
    parts = _subtract_seconds(outcome.parts, less)
    trains = training_seconds(PredictedStalls(tuple(parts)))
    data = predict_data_stalls(
        job, trains, moved=any(name not in DATA_STALLS for name in less or {})
    )
    samples = (
        None
        if job.passes is None
        else job.passes.samples * count_readers(base.profile, target.ranks)
    )
    return StallDraws(
        target,
        (*parts, *_subtract_seconds(data.parts, less)),
        (*outcome.missing, *data.missing),
        samples,
    )


def _subtract_seconds(
    parts: Sequence[PredictedStall], less: Mapping[str, float] | None
) -> list[PredictedStall]:
    return (
        [replace(part, seconds=part.seconds - less.get(part.name, 0.0)) for part in parts]
        if less
        else list(parts)
    )


def lost_stalls(base: Base, forecast: Forecast | StallDraws) -> tuple[Missing, ...]:
    """Stalls of the target that cannot be predicted, other than those which the profile itself could not tell."""
    never_known = {item.name for item in base.breakdown.skipped if item.possible}
    reasons = {item.why for item in base.breakdown.skipped}
    return tuple(
        item for item in forecast.unknown if item.name not in never_known or item.why not in reasons
    )
