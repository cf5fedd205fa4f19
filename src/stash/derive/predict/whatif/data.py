"""What of a step waits for data: prep and fetch of a profiled job whose pipeline, machines or training are changed.

Sets up the pipeline that the changes ask for; what a step then waits is ``loading``'s business.
"""

from __future__ import annotations

from dataclasses import replace

from stash.base.ladder import DATA_STALLS
from stash.derive.predict.forecast.parts import Predicted, PredictedStalls
from stash.derive.predict.loading.measured import Loading, cores_worth, lacks, rented
from stash.derive.predict.loading.page_cache import cached_share
from stash.derive.predict.loading.pipeline import Pipeline, less_sure
from stash.derive.predict.loading.stalls import predicted
from stash.derive.predict.loading.storage import NodeStorage, served
from stash.derive.predict.target.cluster import Storage, Target
from stash.derive.predict.uncertainty.draws import Array
from stash.derive.predict.uncertainty.quantity import Origin, Used
from stash.derive.predict.whatif.base import Base, as_measured, more_passes
from stash.derive.predict.whatif.changes import Alteration
from stash.derive.predict.whatif.passes import ComputeScale, Passes
from stash.derive.predict.whatif.refusing import records
from stash.derive.stalls.breakdown import Missing


def _as_measured_or_cached(base: Base, told: list[Missing], wanted: Alteration) -> PredictedStalls:
    """Where nothing else changes: what was measured, without fetch if all data are in memory, as under warm."""
    parts = as_measured(base, DATA_STALLS)
    if wanted.cache is not None:
        parts = [replace(part, seconds=0 * part.seconds) if part.name == "fetch" else part for part in parts]
    return PredictedStalls(tuple(parts), tuple(told))


def read(
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
    pipeline = pipeline_of(base, base.loading, target, wanted, after)
    # On CPUs it is passes that take cores, elsewhere launching them.
    busier = more_passes(base, after) * (scale.factor if target.device is None else 1.0)
    pipeline = replace(pipeline, training=busier)
    loading = base.loading
    if (pipeline.workers, pipeline.cores is loading.pipeline.cores) != (loading.pipeline.workers, True):
        loading = replace(loading, work=less_sure(loading.work, base.draws))
    prep, fetch = predicted(pipeline, loading, base.held, trained_in)
    makes = Used(about="one worker's seconds per sample", unit="seconds", quantity=base.loading.make)
    same = wanted == Alteration()
    origin: Origin = "measured" if same else "scaled"
    parts = [Predicted("prep", prep, origin, (makes,), tuple(_beyond(base, target)))]
    if fetch is None:
        return PredictedStalls(tuple(parts), tuple(told))
    storage = _storage(base, target, wanted)
    facts = () if storage is None else storage.facts
    beyond = _unknown_storage(same) if storage is None else storage.beyond
    parts.append(Predicted("fetch", fetch, origin, facts, beyond, all(fact.quantity.spread_known for fact in facts)))
    return PredictedStalls(tuple(parts), tuple(told))


def _unknown_storage(same: bool) -> tuple[str, ...]:
    return () if same else ("storage kept up with the workers, so what it can do is not known",)


def _beyond(base: Base, target: Target) -> list[str]:
    if target.cores is not None and base.target.cores is not None and target.cores.origin == "data sheet":
        return ["cores are taken to be as fast as those measured"]
    return []


def pipeline_of(base: Base, found: Loading, target: Target, wanted: Alteration, after: Passes | None) -> Pipeline:
    old = found.pipeline
    workers = old.workers if wanted.workers is None else wanted.workers
    host = base.profile.hosts[0] if base.profile.hosts else None
    cores = old.cores
    if target != base.target or workers != old.workers:
        threads = None if target.cores is None else target.cores.value
        shared = wanted.instance is not None or rented(host)
        cores = cores_worth(shared, threads, target.devices * (workers + 1), base.draws)
    storage = _storage(base, target, wanted)
    return replace(
        old,
        ranks=target.devices,
        workers=workers,
        samples=old.samples if after is None else after.batch,
        batches=old.batches if after is None else after.accumulated,
        cores=cores,
        store=None if storage is None else storage.store,
        cached=_cached(base, found, wanted),
        keeps=base.draws.uniforms("page cache"),
    )


def _storage(base: Base, target: Target, wanted: Alteration) -> NodeStorage | None:
    """What a node's storage delivers: as asked for, or of another machine's data sheet, else as it did."""
    as_it_did = None if base.loading is None else base.loading.rate
    if wanted.disk_times is not None and as_it_did is not None:
        as_it_did = as_it_did.scaled(wanted.disk_times, source=f"--disk {wanted.disk_times:g}x")
    elif target.storage is not None and target.storage != base.target.storage:
        found = served(target.storage, wanted.lasting, base.draws)
        if found is not None:
            return found
    return None if as_it_did is None else served(Storage(bytes_per_second=as_it_did), None, base.draws)


def _cached(base: Base, found: Loading, wanted: Alteration) -> float:
    """Share of the data in memory: none, as under cold, unless asked otherwise."""
    if wanted.cache is not None:
        return wanted.cache
    if wanted.memory is not None and found.dataset_bytes:
        return cached_share(wanted.memory, found.dataset_bytes)
    return 0.0
