"""Stalls of a profiled job after a change: what of a step trains, and what of it waits for data.

Each is as it was measured, scaled by what the changes do to it; how a pipeline supplies data is
``loading``'s business.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stash.analysis.breakdown import Missing
from stash.core.ladder import BUBBLE, DATA_STALLS, EXCHANGE_STALLS
from stash.core.units import counted
from stash.predict.changes import AS_IT_IS, Alteration, stage_of
from stash.predict.cluster import Storage, Target
from stash.predict.compute_ratios import crowded, crowding
from stash.predict.draws import Array, Draws, Origin, Used
from stash.predict.exposure import AS_MEASURED, ExchangeChanges
from stash.predict.forecast import Predicted, PredictedStalls
from stash.predict.loading import Loading, cores_worth, lacks, predicted, rented
from stash.predict.passes import Base, ComputeScale, Passes, as_measured, more_passes, records
from stash.predict.pipeline import NodeStorage, Pipeline, cached_share, served

# What waits for data


def read(
    base: Base,
    target: Target,
    wanted: Alteration,
    after: Passes | None,
    scale: ComputeScale,
    trained_in: Array,
    moved: bool,
) -> PredictedStalls:
    """Prep and fetch, of a step that trains for ``trained_in``; ``moved``: otherwise than in the profile."""
    missing = [item for item in base.breakdown.skipped if item.name in DATA_STALLS]
    if base.loading is None or base.held is None:
        if set(wanted.names) <= {"cache"} and wanted.cache in (None, 1.0) and not moved:
            # Nothing else changes: what was measured, without fetch if all data are in memory, as under warm.
            parts = as_measured(base, DATA_STALLS)
            if wanted.cache is not None:
                parts = [replace(part, seconds=0 * part.seconds) if part.name == "fetch" else part for part in parts]
            return PredictedStalls(tuple(parts), tuple(missing))
        why = (
            lacks(base.profile, base.breakdown)
            or f"what a batch costs its workers is unknown; {records(base.profile)}"
        )
        lost = [name for name in DATA_STALLS if base.breakdown.stall(name) is not None]
        return PredictedStalls((), (*missing, *(Missing(name=name, why=why, possible=True) for name in lost)))
    loading, storage = base.loading, storage_of(base, target, wanted)
    # On CPUs it is passes that take cores, elsewhere launching them.
    busier = more_passes(base, after) * (scale.factor if target.device is None else 1.0)
    pipeline = pipeline_of(base, loading, target, wanted, after, storage, busier)
    same_cores = (pipeline.workers, pipeline.cores is loading.pipeline.cores) == (loading.pipeline.workers, True)
    work = loading.work if same_cores or base.work_elsewhere is None else base.work_elsewhere
    prep, fetch = predicted(pipeline, work, base.held, trained_in)
    other_cores = target.cores is not None and base.target.cores is not None and target.cores.origin == "data sheet"
    beyond: tuple[str, ...] = ("cores are taken to be as fast as those measured",) if other_cores else ()
    if target.cores is None and target != base.target:
        beyond = ("how many cores a node has is unknown: they are taken to be enough for every worker",)
    same = wanted == AS_IT_IS
    origin: Origin = "measured" if same else "scaled"
    parts = [Predicted("prep", prep, origin, (base.loading.fact,), beyond)]
    if fetch is None:
        return PredictedStalls(tuple(parts), tuple(missing))
    if storage is None:
        facts: tuple[Used, ...] = ()
        beyond = () if same else ("storage kept up with the workers, so what it can do is not known",)
    else:
        facts, beyond = storage.facts, storage.beyond
        if not wanted.disk_times and _unpublished(base, target, wanted):
            beyond = (
                *beyond,
                "what its storage does is not published: it is taken to be as fast as the profiled one",
            )
    parts.append(Predicted("fetch", fetch, origin, facts, beyond, all(fact.quantity.spread_known for fact in facts)))
    return PredictedStalls(tuple(parts), tuple(missing))


def pipeline_of(
    base: Base,
    loading: Loading,
    target: Target,
    wanted: Alteration,
    after: Passes | None,
    storage: NodeStorage | None,
    training: Array | float = 1.0,
) -> Pipeline:
    """The data pipeline that the changes ask for; ``storage`` and ``training`` are those of its node."""
    old = loading.pipeline
    workers = old.workers if wanted.workers is None else wanted.workers
    host = base.profile.hosts[0] if base.profile.hosts else None
    cores = old.cores
    if target != base.target or workers != old.workers:
        threads = None if target.cores is None else target.cores.value
        shared = wanted.instance is not None or rented(host)
        cores = cores_worth(shared, threads, target.devices * (workers + 1), base.draws)
    if wanted.cache is not None:
        cached = wanted.cache
    elif wanted.memory is not None and loading.dataset_bytes:
        cached = cached_share(wanted.memory, loading.dataset_bytes)
    else:  # as under cold
        cached = 0.0
    return replace(
        old,
        ranks=target.devices,
        workers=workers,
        samples=old.samples if after is None else after.batch,
        batches=old.batches if after is None else after.accumulated,
        cores=cores,
        store=None if storage is None else storage.store,
        cached=cached,
        keeps=base.draws.uniforms("page cache"),
        training=training,
    )


def storage_of(base: Base, target: Target, wanted: Alteration) -> NodeStorage | None:
    """What a node's storage delivers: as asked for, or of another machine's data sheet, else as it did."""
    as_it_did = None if base.loading is None else base.loading.rate
    if wanted.disk_times is not None and as_it_did is not None:
        as_it_did = as_it_did.scaled(wanted.disk_times, source=f"--disk {wanted.disk_times:g}x")
    elif target.storage is not None and target.storage != base.target.storage:
        there = served(target.storage, wanted.duration, base.draws)
        if there is not None:
            return there
    return None if as_it_did is None else served(Storage(bytes_per_second=as_it_did), None, base.draws)


def _unpublished(base: Base, target: Target, wanted: Alteration) -> bool:
    """Whether another machine's storage is described, and not how fast it is."""
    if target.storage is None or target.storage == base.target.storage:
        return False
    return served(target.storage, wanted.duration, base.draws) is None


# What trains, and the exchange


def no_change(draws: Draws) -> ComputeScale:
    return ComputeScale(np.ones(draws.count))


def trained(
    base: Base, target: Target, wanted: Alteration, after: Passes | None, scale: ComputeScale
) -> PredictedStalls:
    """Compute, transfer, contention and the exchange: all but the data."""
    times = more_passes(base, after)
    more_samples = 1.0 if after is None or base.passes is None else after.samples / base.passes.samples
    parts, missing = [], []
    for name, factor in (
        ("compute", scale.factor * times),
        ("transfer", np.full(base.draws.count, more_samples)),
        ("contention", scale.factor * times),
        (BUBBLE, scale.factor * times),
    ):
        seconds = base.stall(name)
        if name == BUBBLE and seconds is None:
            continue  # no pipeline
        if name == "contention" and target.ranks == 1:
            missing.append(Missing(name=name, why="one device"))
        elif seconds is not None:
            parts.append(_scaled(base, target, name, seconds, factor, scale))
        elif name == "contention" and base.target.ranks == 1 and target.device is not None:
            # One device was profiled: contention as published jobs have it, of a step on one.
            alone = np.sum([part.seconds for part in parts], axis=0)
            beyond = "one device was profiled: what several cost each other is that of published jobs"
            about = "what several devices cost each other, of a step"
            fact = Used(about=about, unit="fraction", quantity=crowding())
            # Losses of one model on several counts differ more than those of models do, so counts share no draw.
            crowd = f"crowding of {target.devices} {target.device}"
            seconds = alone * crowded(base.draws.uniforms(crowd))
            parts.append(Predicted("contention", seconds, "data sheet", (fact,), (beyond,)))
        else:
            missing.append(_unmeasured(base, target, name))
    changes = _exchange_changes(base, wanted, after, scale)
    links = ("nodes", "devices", "inside", "network")
    if changes == AS_MEASURED and all(getattr(target, name) == getattr(base.target, name) for name in links):
        # Where nothing of the exchange changes it is as measured, so that no model adds doubts of its own.
        parts += as_measured(base, EXCHANGE_STALLS)
        missing += [_unmeasured(base, target, name) for name in EXCHANGE_STALLS if base.breakdown.stall(name) is None]
        return PredictedStalls(tuple(parts), tuple(missing))
    exchange = base.exchange.on(target, changes)
    return PredictedStalls((*parts, *exchange.parts), (*missing, *exchange.missing))


def _scaled(base: Base, target: Target, name: str, seconds: Array, factor: Array, scale: ComputeScale) -> Predicted:
    same = bool(np.all(factor == 1.0))
    origins: list[Origin] = [fact.quantity.origin for fact in scale.facts] if name != "transfer" else []
    origin: Origin = "data sheet" if "data sheet" in origins else "measured" if same else "scaled"
    beyond = list(scale.beyond) if name == "compute" else []
    contained = [item.name for item in base.breakdown.skipped if item.contained_in == name and item.possible]
    if contained and not same:
        beyond.append(f"{name} contains {' and '.join(contained)}, which was not measured separately")
    if name == "compute" and target.device is None and target.cores != base.target.cores:
        beyond.append("compute is as on the cores that were measured: what others make of it is not known")
    if name != "compute" and target.device != base.target.device:
        beyond.append(f"{name} was measured on {base.target.device}, and is taken over")
    if name == "contention" and target.devices != base.target.devices:
        before = counted(base.target.devices, "rank")
        beyond.append(f"contention was measured with {before} on a node, and is taken over")
    facts = scale.facts if name == "compute" else ()
    if name in base.as_it_was:
        facts = (base.as_it_was[name], *facts)
    known = all(fact.quantity.spread_known for fact in facts)
    return Predicted(name, seconds * factor, origin, facts, tuple(beyond), known)


def _unmeasured(base: Base, target: Target, name: str) -> Missing:
    """A stall that the profile does not tell: why, and whether the target can have it."""
    missing = next((item for item in base.breakdown.skipped if item.name == name), None)
    if name == "contention" and base.target.ranks == 1 and target.ranks > 1:
        why = "one device was profiled, which shares its host with nobody; profile with two: --nproc-per-node 2"
        return Missing(name=name, why=why, possible=True)
    if missing is None:
        return Missing(name=name, why="the profile does not tell it", possible=True)
    return missing


def _exchange_changes(base: Base, wanted: Alteration, after: Passes | None, scale: ComputeScale) -> ExchangeChanges:
    work, stage = base.exchange.work, stage_of(wanted)
    once_already = work is None or work.times == 1.0
    return ExchangeChanges(
        bucket_cap=wanted.bucket,
        compress=1.0 if wanted.compress is None else 1 / wanted.compress,
        times=None if wanted.accumulate is None or once_already else 1.0,
        compute=scale.mean,
        algorithm=wanted.algorithm,
        sharding=stage,
        passes=1 if after is None or stage is None else after.accumulated,
    )


def trains_for(outcome: PredictedStalls) -> Array:
    """A step without waiting for data, ``[draws]``."""
    total: Array = np.sum([part.seconds for part in outcome.parts], axis=0)
    return total
