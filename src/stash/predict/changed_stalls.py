"""Stalls of a profiled job after a change: what of a step trains, and what of it waits for data.

Each is as it was measured, scaled by what the changes do to it; how a pipeline supplies data is
``loading``'s business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stash.analysis.breakdown import Missing
from stash.core.ladder import BUBBLE, DATA_STALLS, EXCHANGE_STALLS
from stash.core.units import format_count
from stash.predict.changed_job import ChangedJob
from stash.predict.cluster import Target
from stash.predict.compute_ratios import crowding, crowding_quantiles
from stash.predict.draws import Array, Origin, Used
from stash.predict.exposure import AS_MEASURED
from stash.predict.forecast import PredictedStall, PredictedStalls
from stash.predict.loading import predict_loading, why_no_loading
from stash.predict.passes import Base, ComputeScale, measured_stalls, recording_hint

# What waits for data


def predict_data_stalls(job: ChangedJob, trained_in: Array, moved: bool) -> PredictedStalls:
    """Prep and fetch, of a step that trains for ``trained_in``; ``moved``: otherwise than in the profile."""
    base, target = job.base, job.target
    missing = [item for item in base.breakdown.skipped if item.name in DATA_STALLS]
    if base.loading is None or base.held is None or job.pipeline is None:
        return _unmodelled_data_stalls(job, missing, moved)
    loading, pipeline, storage = base.loading, job.pipeline, job.storage
    same_cores = (pipeline.workers, pipeline.cores is loading.pipeline.cores) == (
        loading.pipeline.workers,
        True,
    )
    work = loading.work if same_cores or base.work_elsewhere is None else base.work_elsewhere
    prep, fetch = predict_loading(pipeline, work, base.held, trained_in)
    other_cores = (
        target.cores is not None
        and base.target.cores is not None
        and target.cores.origin == "data sheet"
    )
    beyond: tuple[str, ...] = (
        ("cores are taken to be as fast as those measured",) if other_cores else ()
    )
    if target.cores is None and target != base.target:
        beyond = (
            "how many cores a node has is unknown: they are taken to be enough for every worker",
        )
    origin: Origin = "measured" if job.unchanged else "scaled"
    parts = [PredictedStall("prep", prep, origin, (base.loading.fact,), beyond)]
    if fetch is None:
        return PredictedStalls(tuple(parts), tuple(missing))
    if storage is None:
        facts: tuple[Used, ...] = ()
        beyond = (
            ()
            if job.unchanged
            else ("storage kept up with the workers, so what it can do is not known",)
        )
    else:
        facts, beyond = (storage.fact,), storage.beyond
        if job.unpublished:
            beyond = (
                *beyond,
                "what its storage does is not published: it is taken to be as fast as the profiled one",
            )
    parts.append(
        PredictedStall(
            "fetch", fetch, origin, facts, beyond, all(fact.quantity.has_spread for fact in facts)
        )
    )
    return PredictedStalls(tuple(parts), tuple(missing))


def _unmodelled_data_stalls(
    job: ChangedJob, missing: Sequence[Missing], moved: bool
) -> PredictedStalls:
    """Prep and fetch of a job whose pipeline is unknown: as they were measured, or unknown."""
    base = job.base
    if job.only_cached and job.cached in (None, 1.0) and not moved:
        # Nothing else changes: what was measured, without fetch if all data are in memory, as under warm.
        parts = measured_stalls(base, DATA_STALLS)
        if job.cached is not None:
            parts = [
                replace(part, seconds=0 * part.seconds) if part.name == "fetch" else part
                for part in parts
            ]
        return PredictedStalls(tuple(parts), tuple(missing))
    why = (
        why_no_loading(base.profile, base.breakdown)
        or f"what a batch costs its workers is unknown; {recording_hint(base.profile)}"
    )
    lost = [name for name in DATA_STALLS if base.breakdown.stall(name) is not None]
    return PredictedStalls(
        (), (*missing, *(Missing(name=name, why=why, possible=True) for name in lost))
    )


# What trains, and the exchange


def predict_training_stalls(job: ChangedJob) -> PredictedStalls:
    """Compute, transfer, contention and the exchange: all but the data."""
    base, target, scale = job.base, job.target, job.compute
    times = scale.factor * job.more_passes
    parts, missing = [], []
    for name, factor in (
        ("compute", times),
        ("transfer", np.full(base.draws.count, job.more_samples)),
        ("contention", times),
        (BUBBLE, times),
    ):
        seconds = base.stall(name)
        if name == BUBBLE and seconds is None:
            continue  # no pipeline
        if name == "contention" and target.ranks == 1:
            missing.append(Missing(name=name, why="one device"))
        elif seconds is not None:
            parts.append(_scale_stall(base, target, name, seconds, factor, scale))
        elif name == "contention" and base.target.ranks == 1 and target.device is not None:
            # One device was profiled: contention as published jobs have it, of a step on one.
            alone = np.sum([part.seconds for part in parts], axis=0)
            beyond = (
                "one device was profiled: what several cost each other is that of published jobs"
            )
            about = "what several devices cost each other, of a step"
            fact = Used(about=about, unit="fraction", quantity=crowding(target.devices))
            # Losses of one model on several counts differ more than those of models do, so counts share no draw.
            crowd = f"crowding of {target.devices} {target.device}"
            seconds = alone * crowding_quantiles(base.draws.uniforms(crowd), target.devices)
            parts.append(PredictedStall("contention", seconds, "data sheet", (fact,), (beyond,)))
        else:
            missing.append(_missing_stall(base, target, name))
    links = ("nodes", "devices", "inside", "network")
    if job.exchange == AS_MEASURED and all(
        getattr(target, name) == getattr(base.target, name) for name in links
    ):
        # Where nothing of the exchange changes it is as measured, so that no model adds doubts of its own.
        parts += measured_stalls(base, EXCHANGE_STALLS)
        missing += [
            _missing_stall(base, target, name)
            for name in EXCHANGE_STALLS
            if base.breakdown.stall(name) is None
        ]
        return PredictedStalls(tuple(parts), tuple(missing))
    exchange = base.exchange.predict(target, job.exchange)
    return PredictedStalls((*parts, *exchange.parts), (*missing, *exchange.missing))


def _scale_stall(
    base: Base, target: Target, name: str, seconds: Array, factor: Array, scale: ComputeScale
) -> PredictedStall:
    same = bool(np.all(factor == 1.0))
    origins: list[Origin] = (
        [fact.quantity.origin for fact in scale.facts] if name != "transfer" else []
    )
    origin: Origin = "data sheet" if "data sheet" in origins else "measured" if same else "scaled"
    beyond = list(scale.beyond) if name == "compute" else []
    contained = [
        item.name for item in base.breakdown.skipped if item.contained_in == name and item.possible
    ]
    if contained and not same:
        beyond.append(
            f"{name} contains {' and '.join(contained)}, which was not measured separately"
        )
    if name == "compute" and target.device is None and target.cores != base.target.cores:
        beyond.append(
            "compute is as on the cores that were measured: what others make of it is not known"
        )
    if name != "compute" and target.device != base.target.device:
        beyond.append(f"{name} was measured on {base.target.device}, and is taken over")
    if name == "contention" and target.devices != base.target.devices:
        before = format_count(base.target.devices, "rank")
        beyond.append(f"contention was measured with {before} on a node, and is taken over")
    facts = scale.facts if name == "compute" else ()
    if name in base.measured_facts:
        facts = (base.measured_facts[name], *facts)
    known = all(fact.quantity.has_spread for fact in facts)
    return PredictedStall(name, seconds * factor, origin, facts, tuple(beyond), known)


def _missing_stall(base: Base, target: Target, name: str) -> Missing:
    """A stall that the profile does not tell: why, and whether the target can have it."""
    missing = next((item for item in base.breakdown.skipped if item.name == name), None)
    if name == "contention" and base.target.ranks == 1 and target.ranks > 1:
        why = "one device was profiled, which shares its host with nobody; profile with two: --nproc-per-node 2"
        return Missing(name=name, why=why, possible=True)
    if missing is None:
        return Missing(name=name, why="the profile does not tell it", possible=True)
    return missing


def training_seconds(outcome: PredictedStalls) -> Array:
    """A step without waiting for data, ``[draws]``."""
    total: Array = np.sum([part.seconds for part in outcome.parts], axis=0)
    return total
