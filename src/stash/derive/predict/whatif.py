"""What a profiled job's step would be with other machines or settings: changes in, forecast out.

Each stall comes from its own model, held to what was measured of it, in the ladder's order: what trains, what is
waited for, what is read. Without changes the forecast is the measurement. Knows how the models meet; every formula is
theirs. Speed and error: ``docs/validation.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from stash.base.errors import UserError
from stash.base.ladder import DATA_STALLS, EXCHANGE_STALLS
from stash.base.records import Profile
from stash.derive.predict.changes import Alteration
from stash.derive.predict.compute import ComputeScale, Passes, compute_scale, passes
from stash.derive.predict.data_stalls import HeldToMeasurement, Suffices, held_to, predicted, what_suffices
from stash.derive.predict.draws import Array, Draws
from stash.derive.predict.exchange import ExchangeModel
from stash.derive.predict.exchanged import AS_MEASURED, ExchangeChanges, exchanged
from stash.derive.predict.forecast import Forecast, Predicted, PredictedStalls, StallDraws, Used, forecast
from stash.derive.predict.loading import Loading, cores_worth, lacks, loading, rented
from stash.derive.predict.page_cache import cached_share
from stash.derive.predict.pipeline import Pipeline, SampleStore
from stash.derive.predict.quantity import Origin, Quantity, measured
from stash.derive.predict.recorded import records
from stash.derive.predict.retarget import retarget
from stash.derive.predict.sources import of_profile
from stash.derive.predict.target import Target
from stash.derive.predict.unanswered import refuse_unanswerable
from stash.derive.stalls import attribute
from stash.derive.stalls.breakdown import Breakdown, Missing
from stash.keep.catalog import Catalog
from stash.keep.catalog.layers import merge

AS_IT_IS = Alteration()
_OF_MACHINES = (
    "network", "network_times", "nodes", "gpus", "gpu", "cpus", "disk", "memory", "instance", "cluster",
)  # fmt: skip


@lru_cache(maxsize=1)
def shipped_catalog() -> Catalog:
    """Only the facts that come with Stash."""
    return merge(None, None)


def no_files(name: str) -> Target:
    """Where nobody reads files."""
    raise UserError(f"--cluster {name}: files of clusters are read by `stash whatif` only")


@dataclass(frozen=True, eq=False)
class Base:
    """A profile read once: whatever every forecast from it starts with."""

    profile: Profile
    breakdown: Breakdown
    target: Target
    draws: Draws
    passes: Passes | None
    exchange: ExchangeModel
    loading: Loading | None
    held: HeldToMeasurement | None
    catalog: Callable[[], Catalog]
    clusters: Callable[[str], Target]
    """Machines by the file that describes them."""

    @property
    def source(self) -> str:
        return f"the profile of {self.profile.created[:10]}"

    def stall(self, name: str) -> Array | None:
        """A measured stall, ``[draws]``."""
        found = self.breakdown.stall(name)
        return None if found is None else self.draws.around(f"measured {name}", found.time)


def base_of(
    profile: Profile,
    breakdown: Breakdown | None = None,
    draws: Draws | None = None,
    catalog: Callable[[], Catalog] = shipped_catalog,
    clusters: Callable[[str], Target] = no_files,
) -> Base:
    """What forecasts from ``profile`` start with; raises StashError if it has no complete round."""
    breakdown, draws = breakdown or attribute(profile), draws or Draws()
    samples = breakdown.samples_per_step
    done = passes(profile, None if samples is None else samples / breakdown.world_size)
    found = loading(profile, breakdown, draws)
    target = of_profile(profile)
    exchange = ExchangeModel(profile, breakdown, target, draws)
    base = Base(profile, breakdown, target, draws, done, exchange, found, None, catalog, clusters)
    if found is None:
        return base
    trains = _trains_for(_predicted_training(base, base.target, AS_IT_IS, done, _no_change(draws)))
    return replace(base, held=held_to(found, breakdown, draws, trains))


def _no_change(draws: Draws) -> ComputeScale:
    return ComputeScale(np.ones(draws.count))


def what_if(base: Base, wanted: Alteration = AS_IT_IS, less: Mapping[str, float] | None = None) -> Forecast:
    """The forecast of the profiled job with these changes; raises UserError if they cannot be, or nobody can tell.

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


def stall_draws(base: Base, wanted: Alteration = AS_IT_IS, less: Mapping[str, float] | None = None) -> StallDraws:
    """What ``what_if`` makes its forecast of: for whoever computes on with every draw. Raises UserError likewise."""
    if wanted == AS_IT_IS and not less:
        return _as_it_is(base)
    target = base.target
    if _moves(wanted):
        target = retarget(base.target, wanted, base.catalog(), base.clusters)
    after = passes(base.profile, _samples_per_rank(base), wanted)
    refuse_unanswerable(base.profile, base.breakdown, base.loading, wanted, after)
    scale = _no_change(base.draws)
    if target.device != base.target.device or wanted.batch is not None or wanted.trained_in is not None:
        scale = compute_scale(
            base.profile, base.target, target, wanted, base.passes, after, base.draws, base.catalog()
        )
    outcome = _predicted_training(base, target, wanted, after, scale)
    parts = _lessened(outcome.parts, less)
    trains = _trains_for(PredictedStalls(tuple(parts)))
    data = _predicted_data(base, target, wanted, after, scale, trains, _trains_otherwise(less))
    samples = None if after is None else after.samples * target.ranks * _replicas(base)
    return StallDraws(target, (*parts, *_lessened(data.parts, less)), (*outcome.missing, *data.missing), samples)


def _trains_otherwise(less: Mapping[str, float] | None) -> bool:
    return any(name not in DATA_STALLS for name in less or {})


def _lessened(parts: Sequence[Predicted], less: Mapping[str, float] | None) -> list[Predicted]:
    return [replace(part, seconds=part.seconds - (less or {}).get(part.name, 0.0)) for part in parts]


def _as_it_is(base: Base) -> StallDraws:
    """What was measured: no model has a part in it."""
    found = [(stall.name, base.stall(stall.name)) for stall in base.breakdown.stalls]
    parts = tuple(_as_measured(base, name, seconds) for name, seconds in found if seconds is not None)
    return StallDraws(base.target, parts, base.breakdown.skipped, base.breakdown.samples_per_step)


def suffices(base: Base, wanted: Alteration = AS_IT_IS) -> Suffices | None:
    """DS-Analyzer's questions for the job with these changes; ``None`` where its pipeline is unknown."""
    if base.loading is None:
        return None
    told = what_if(base, wanted)
    after = passes(base.profile, _samples_per_rank(base), wanted)
    pipeline = _pipeline(base, base.loading, told.target, wanted, after)
    trains = told.breakdown.step_seconds - told.breakdown.seconds(*DATA_STALLS)
    return what_suffices(pipeline, base.loading, trains, told.target.nodes)


# What trains -----------------------------------------------------------------------------------------------


def _predicted_training(
    base: Base, target: Target, wanted: Alteration, after: Passes | None, scale: ComputeScale
) -> PredictedStalls:
    """Compute, transfer, contention and the exchange: all but the data."""
    more_passes = _more_passes(base, after)
    more_samples = 1.0 if after is None or base.passes is None else after.samples / base.passes.samples
    parts, missing = [], []
    for name, factor in (
        ("compute", scale.factor * more_passes),
        ("transfer", np.full(base.draws.count, more_samples)),
        ("contention", scale.factor * more_passes),
    ):
        seconds = base.stall(name)
        if name == "contention" and target.ranks == 1:
            missing.append(Missing(name=name, why="one device"))
        elif seconds is not None:
            parts.append(_scaled(base, target, name, seconds, factor, scale))
        else:
            missing.append(_unmeasured(base, target, name))
    exchange = _exchange(base, target, _exchange_changes(base, wanted, scale))
    return PredictedStalls((*parts, *exchange.parts), (*missing, *exchange.missing))


def _exchange(base: Base, target: Target, changed: ExchangeChanges) -> PredictedStalls:
    """As measured where nothing of it changes, so that no model adds doubts of its own."""
    links = ("nodes", "devices", "inside", "network")
    if changed == AS_MEASURED and all(getattr(target, name) == getattr(base.target, name) for name in links):
        seen = [(name, base.stall(name)) for name in EXCHANGE_STALLS]
        measured_parts = [_as_measured(base, name, seconds) for name, seconds in seen if seconds is not None]
        lost = [_unmeasured(base, target, name) for name, seconds in seen if seconds is None]
        return PredictedStalls(tuple(measured_parts), tuple(lost))
    return base.exchange.on(target, changed)


def _as_measured(base: Base, name: str, seconds: Array) -> Predicted:
    stall = base.breakdown.stall(name)
    assert stall is not None, "it has seconds"
    fact = measured(stall.time, base.profile.created[:10], base.source)
    return Predicted(name, seconds, "measured", (Used(about=f"{name} as it was", unit="seconds", quantity=fact),))


def _more_passes(base: Base, after: Passes | None) -> float:
    return 1.0 if after is None or base.passes is None else after.accumulated / base.passes.accumulated


def _scaled(base: Base, target: Target, name: str, seconds: Array, factor: Array, scale: ComputeScale) -> Predicted:
    same = bool(np.all(factor == 1.0))
    origins: list[Origin] = [fact.quantity.origin for fact in scale.facts] if name != "transfer" else []
    origin: Origin = "data sheet" if "data sheet" in origins else "measured" if same else "scaled"
    beyond = list(scale.beyond) if name == "compute" else []
    stall = base.breakdown.stall(name)
    contained = [item.name for item in base.breakdown.skipped if item.contained_in == name and item.possible]
    if contained and not same:
        beyond.append(f"{name} contains {' and '.join(contained)}, which nobody measured apart")
    if name == "compute" and target.device is None and target.cores != base.target.cores:
        beyond.append("compute is as on the cores that were measured: what others make of it is not known")
    if name != "compute" and target.device != base.target.device:
        beyond.append(f"{name} was measured on {base.target.device}, and is taken over")
    if name == "contention" and target.devices != base.target.devices:
        beyond.append(f"contention was measured with {base.target.devices} ranks on a node, and is taken over")
    facts = scale.facts if name == "compute" else ()
    if stall is not None:
        as_measured = measured(stall.time, base.profile.created[:10], base.source)
        facts = (Used(about=f"{name} as it was", unit="seconds", quantity=as_measured), *facts)
    known = all(fact.quantity.spread_known for fact in facts)
    return Predicted(name, seconds * factor, origin, facts, tuple(beyond), known)


def _unmeasured(base: Base, target: Target, name: str) -> Missing:
    """A stall that the profile does not tell: why, and whether the target can have it."""
    told = next((item for item in base.breakdown.skipped if item.name == name), None)
    if name == "contention" and base.target.ranks == 1 and target.ranks > 1:
        why = "one device was profiled, which shares its host with nobody; profile with two: --nproc-per-node 2"
        return Missing(name=name, why=why, possible=True)
    if told is None:
        return Missing(name=name, why="the profile does not tell it", possible=True)
    return told


def _exchange_changes(base: Base, wanted: Alteration, scale: ComputeScale) -> ExchangeChanges:
    work = exchanged(base.profile)
    once_already = work is None or work.times == 1.0
    return ExchangeChanges(
        bucket_cap=wanted.bucket,
        compress=1.0 if wanted.compress is None else 1 / wanted.compress,
        times=None if wanted.accumulate is None or once_already else 1.0,
        compute=float(np.mean(scale.factor)),
    )


def _trains_for(outcome: PredictedStalls) -> Array:
    """A step without waiting for data, ``[draws]``."""
    total: Array = np.sum([part.seconds for part in outcome.parts], axis=0)
    return total


# What is read ----------------------------------------------------------------------------------------------


def _as_measured_or_cached(base: Base, told: list[Missing], wanted: Alteration) -> PredictedStalls:
    """Where nothing else changes: what was measured, without fetch if all data are in memory, as under warm."""
    seen = [(name, base.stall(name)) for name in DATA_STALLS]
    parts = [_as_measured(base, name, seconds) for name, seconds in seen if seconds is not None]
    if wanted.cache is not None:
        parts = [replace(part, seconds=0 * part.seconds) if part.name == "fetch" else part for part in parts]
    return PredictedStalls(tuple(parts), tuple(told))


def _predicted_data(
    base: Base,
    target: Target,
    wanted: Alteration,
    after: Passes | None,
    scale: ComputeScale,
    trained_in: Array,
    moved: bool,
) -> PredictedStalls:
    told = [item for item in base.breakdown.skipped if item.name in DATA_STALLS]
    if base.loading is None or base.held is None:
        if set(wanted.names) <= {"cache"} and wanted.cache in (None, 1.0) and not moved:
            return _as_measured_or_cached(base, told, wanted)
        why = (
            lacks(base.profile, base.breakdown)
            or f"what a batch costs its workers is unknown; {records(base.profile)}"
        )
        lost = [name for name in DATA_STALLS if base.breakdown.stall(name) is not None]
        return PredictedStalls((), (*told, *(Missing(name=name, why=why, possible=True) for name in lost)))
    pipeline = _pipeline(base, base.loading, target, wanted, after)
    # On CPUs it is passes that take cores, elsewhere launching them.
    busier = _more_passes(base, after) * (scale.factor if target.device is None else 1.0)
    pipeline = replace(pipeline, training=busier)
    prep, fetch = predicted(pipeline, base.loading, base.held, trained_in)
    makes = Used(about="one worker's seconds per sample", unit="seconds", quantity=base.loading.make)
    same = wanted == AS_IT_IS
    origin: Origin = "measured" if same else "scaled"
    parts = [Predicted("prep", prep, origin, (makes,), tuple(_beyond(base, target)))]
    if fetch is None:
        return PredictedStalls(tuple(parts), tuple(told))
    rate = _storage(base, target, wanted)
    facts = () if rate is None else (Used(about="a node's storage", unit="bytes/s", quantity=rate),)
    beyond = () if rate is not None or same else ("storage kept up with the workers, so what it can do is not known",)
    parts.append(Predicted("fetch", fetch, origin, facts, beyond, all(fact.quantity.spread_known for fact in facts)))
    return PredictedStalls(tuple(parts), tuple(told))


def _beyond(base: Base, target: Target) -> list[str]:
    if target.cores is not None and base.target.cores is not None and target.cores.origin == "data sheet":
        return ["cores are taken to be as fast as those measured"]
    return []


def _pipeline(base: Base, found: Loading, target: Target, wanted: Alteration, after: Passes | None) -> Pipeline:
    old = found.pipeline
    workers = old.workers if wanted.workers is None else wanted.workers
    host = base.profile.hosts[0] if base.profile.hosts else None
    cores = old.cores
    if target != base.target or workers != old.workers:
        threads = None if target.cores is None else target.cores.value
        shared = wanted.instance is not None or rented(host)
        cores = cores_worth(shared, threads, target.devices * (workers + 1), base.draws)
    rate = _storage(base, target, wanted)
    return replace(
        old,
        ranks=target.devices,
        workers=workers,
        samples=old.samples if after is None else after.batch,
        batches=old.batches if after is None else after.accumulated,
        cores=cores,
        store=None if rate is None else SampleStore(base.draws.of("storage", rate)),
        cached=_cached(base, found, wanted),
        keeps=base.draws.uniforms("page cache"),
    )


def _storage(base: Base, target: Target, wanted: Alteration) -> Quantity | None:
    """What a node's storage delivers: as asked for, or of another machine's data sheet, else as it did."""
    if wanted.disk_times is not None and base.loading is not None and base.loading.rate is not None:
        return base.loading.rate.scaled(wanted.disk_times, source=f"--disk {wanted.disk_times:g}x")
    told = None if target.storage is None else target.storage.bytes_per_second
    if told is not None and target.storage != base.target.storage:
        return told
    return None if base.loading is None else base.loading.rate


def _cached(base: Base, found: Loading, wanted: Alteration) -> float:
    """Share of the data in memory: none, as under cold, unless asked otherwise."""
    if wanted.cache is not None:
        return wanted.cache
    if wanted.memory is not None and found.dataset_bytes:
        return cached_share(wanted.memory, found.dataset_bytes)
    return 0.0


# What can be asked -----------------------------------------------------------------------------------------


def _moves(wanted: Alteration) -> bool:
    """Whether the changes are about machines."""
    return any(getattr(wanted, name) is not None for name in _OF_MACHINES)


def _samples_per_rank(base: Base) -> float | None:
    samples = base.breakdown.samples_per_step
    return None if samples is None else samples / base.breakdown.world_size


def _replicas(base: Base) -> float:
    replicas = base.profile.workload.replicas
    return 1.0 if replicas is None else replicas / base.profile.world_size
