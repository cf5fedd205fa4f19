"""What of a step trains: compute, transfer, contention and the exchange of a profiled job that is changed.

Each as it was measured, scaled by what the changes do to it. What waits for data is ``data``'s business.
"""

from __future__ import annotations

import numpy as np

from stash.base.errors import UserError
from stash.base.ladder import EXCHANGE_STALLS
from stash.derive.predict.compute.contention import crowded, crowding
from stash.derive.predict.exchange.exposure import AS_MEASURED, ExchangeChanges
from stash.derive.predict.exchange.timeline import copies
from stash.derive.predict.exchange.traffic import exchanged
from stash.derive.predict.forecast.parts import Predicted, PredictedStalls
from stash.derive.predict.target.cluster import Target
from stash.derive.predict.uncertainty.draws import Array, Draws
from stash.derive.predict.uncertainty.quantity import Origin, Used, measured
from stash.derive.predict.whatif.base import Base, as_measured, more_passes
from stash.derive.predict.whatif.changes import Alteration, stage_of
from stash.derive.predict.whatif.passes import ComputeScale, Passes
from stash.derive.predict.whatif.retarget import named_gpu
from stash.derive.stalls.breakdown import Missing


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
    ):
        seconds = base.stall(name)
        if name == "contention" and target.ranks == 1:
            missing.append(Missing(name=name, why="one device"))
        elif seconds is not None:
            parts.append(_scaled(base, target, name, seconds, factor, scale))
        elif name == "contention" and base.target.ranks == 1 and target.device is not None:
            parts.append(_crowded(base, target, np.sum([part.seconds for part in parts], axis=0)))
        else:
            missing.append(_unmeasured(base, target, name))
    exchange = _exchange(base, target, _exchange_changes(base, target, wanted, after, scale))
    return PredictedStalls((*parts, *exchange.parts), (*missing, *exchange.missing))


def _exchange(base: Base, target: Target, changed: ExchangeChanges) -> PredictedStalls:
    """As measured where nothing of it changes, so that no model adds doubts of its own."""
    links = ("nodes", "devices", "inside", "network")
    if changed == AS_MEASURED and all(getattr(target, name) == getattr(base.target, name) for name in links):
        lost = [_unmeasured(base, target, name) for name in EXCHANGE_STALLS if base.breakdown.stall(name) is None]
        return PredictedStalls(tuple(as_measured(base, EXCHANGE_STALLS)), tuple(lost))
    return base.exchange.on(target, changed)


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


def _crowded(base: Base, target: Target, alone: Array) -> Predicted:
    """Contention of a job that was profiled on one device, as published jobs have it; ``alone`` is its step there."""
    beyond = "one device was profiled: what several cost each other is that of published jobs"
    fact = Used(about="what several devices cost each other, of a step", unit="fraction", quantity=crowding())
    return Predicted("contention", alone * crowded(base.draws.uniforms("crowding")), "data sheet", (fact,), (beyond,))


def _unmeasured(base: Base, target: Target, name: str) -> Missing:
    """A stall that the profile does not tell: why, and whether the target can have it."""
    told = next((item for item in base.breakdown.skipped if item.name == name), None)
    if name == "contention" and base.target.ranks == 1 and target.ranks > 1:
        why = "one device was profiled, which shares its host with nobody; profile with two: --nproc-per-node 2"
        return Missing(name=name, why=why, possible=True)
    if told is None:
        return Missing(name=name, why="the profile does not tell it", possible=True)
    return told


def _exchange_changes(
    base: Base, target: Target, wanted: Alteration, after: Passes | None, scale: ComputeScale
) -> ExchangeChanges:
    work, stage = exchanged(base.profile), stage_of(wanted)
    once_already = work is None or work.times == 1.0
    return ExchangeChanges(
        bucket_cap=wanted.bucket,
        compress=1.0 if wanted.compress is None else 1 / wanted.compress,
        times=None if wanted.accumulate is None or once_already else 1.0,
        compute=float(np.mean(scale.factor)),
        copy_seconds=_copied(base, target, wanted),
        algorithm=wanted.algorithm,
        sharding=stage,
        passes=1 if after is None or stage is None else after.accumulated,
    )


def _copied(base: Base, target: Target, wanted: Alteration) -> float:
    """Seconds a step that copying gradients into buckets takes longer there than it did."""
    was = base.profile.workload.bucket_view
    now = was if wanted.bucket_view is None else wanted.bucket_view
    if now == was or target.device is None:
        return 0.0
    rate = named_gpu(target.device, base.catalog()).memory_bytes_per_second
    if not rate:
        raise UserError(f"--bucket-view: how fast the memory of {target.device} is nobody published")
    work = exchanged(base.profile)
    return (1 if was else -1) * copies(sum(work.buckets) if work is not None else 0.0, rate)


def trains_for(outcome: PredictedStalls) -> Array:
    """A step without waiting for data, ``[draws]``."""
    total: Array = np.sum([part.seconds for part in outcome.parts], axis=0)
    return total
