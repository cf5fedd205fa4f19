"""A plan's fleet held on spot as long as it lasts: what each policy costs, how often it is late, and which to take.

Runs begin at random ticks of records of what was obtainable. Advice is against spot where on-demand costs no more in
the mean, or where nothing with spot machines is in time often enough.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from stash.core.errors import UserError
from stash.core.intervals import Interval
from stash.core.units import counted
from stash.spot.choose.fleet_costs import LONGEST
from stash.spot.policies.hindsight import hindsight
from stash.spot.policies.markets import recorded, revocable
from stash.spot.policies.policies import (
    IDLE,
    POLICIES,
    SPOT,
    Integers,
    Played,
    PolicyName,
    SpotMarket,
    SyncJob,
    course,
    play,
    ticks,
)
from stash.spot.records.fleets import FleetPlan
from stash.spot.records.risks import (
    CheckpointInterval,
    HeldSpan,
    Obtainable,
    PolicyCourse,
    PolicyOutcome,
    SpotPrices,
    SpotSimulation,
)
from stash.spot.risk.lifetimes import ChosenLaw, Gang, law_of, runs_of
from stash.spot.risk.restarting import interval, mean_of, share_of

HINDSIGHTS = 25
"""Runs of the omniscient policy, of which each takes a search of its own: the first of all."""
DEFAULT_POLICIES: tuple[PolicyName, ...] = ("greedy", "uniform", "on-demand", "spot")
_CONFIDENCE = 0.9


def gang(plan: FleetPlan, checkpoint: CheckpointInterval | None = None) -> SyncJob:
    """The plan's fleet as a job; raises UserError where the plan has none, or lacks a price."""
    if plan.chosen is None:
        raise UserError("the plan rents nothing, so there is nothing to simulate; plan again with looser wishes")
    kinds = {kind.name: kind for kind in plan.pool.types}
    work, workers = plan.chosen.seconds - plan.pool.start_seconds, plan.chosen.workers
    if not set(workers) <= set(kinds) or not 0 < min(work, plan.deadline_seconds, *workers.values()) < LONGEST:
        raise UserError("the plan contradicts itself: it rents what its pool has not, or for no time; plan again")
    dollars = plan.pool.server.count * plan.pool.server.dollars_per_hour
    for name, count in workers.items():
        each = kinds[name].on_demand_price
        if each is None:
            raise UserError(
                f"no on-demand price of {name} is known; add on_demand_dollars_per_hour to the pool and plan again"
            )
        dollars += count * each
    return SyncJob(
        work_seconds=work,
        deadline_seconds=plan.deadline_seconds,
        change_seconds=plan.pool.start_seconds,
        on_demand_dollars=dollars,
        interval_seconds=math.inf if checkpoint is None else checkpoint.best,
        write_seconds=0.0 if checkpoint is None else checkpoint.write_seconds,
        keeps=checkpoint is None or checkpoint.just_in_time,
    )


def simulate(
    plan: FleetPlan,
    traces: Sequence[Obtainable],
    names: Sequence[PolicyName] = DEFAULT_POLICIES,
    runs: int = 10_000,
    seed: int = 17,
    write_seconds: float | None = None,
    notice_seconds: float | None = None,
    prices: Mapping[str, SpotPrices] | None = None,
) -> SpotSimulation:
    """Each policy over as many ``runs``; raises UserError where no trace is long enough for one.

    ``traces`` count the machines that could be had of the gang. With ``write_seconds`` of a checkpoint the job is
    synchronous. ``prices`` are the types' over time, the plan's if there are none.
    """
    base = gang(plan)
    assert plan.chosen is not None
    found = recorded(plan, base, traces, prices or {})
    law = None if write_seconds is None else _law(traces, sum(revocable(plan).values()))
    checkpoint = None
    if law is not None and write_seconds is not None:
        checkpoint = interval(write_seconds, Gang(((law.law, 1),)), plan.pool.start_seconds, notice_seconds)
    job = gang(plan, checkpoint)
    starts = np.random.default_rng(seed).choice(found.starts, runs)
    played = {
        name: hindsight(job, found.market, starts[:HINDSIGHTS])
        if name == "omniscient"
        else play(name, job, found.market, starts)
        for name in names
    }
    fixed = played.get("on-demand") or play("on-demand", job, found.market, starts)
    outcomes = tuple(_outcome(name, each, found.independent) for name, each in played.items())
    shown = _typical(played, starts)
    return SpotSimulation(
        workers=plan.chosen.workers,
        obtainable=float(found.market.there.mean()),
        runs=runs,
        seed=seed,
        policies=outcomes,
        advice=_advice(
            outcomes,
            _mean(_outcome("on-demand", fixed, 0).dollars),
            plan.confidence or _CONFIDENCE,
            sum(plan.chosen.workers.values()),
        ),
        mode="asynchronous" if checkpoint is None else "synchronous",
        checkpoint=checkpoint,
        independent=found.independent,
        deadline_seconds=job.deadline_seconds,
        courses=tuple(_course(name, job, found.market, shown) for name in names if name != "omniscient"),
        there=_there(job, found.market, shown),
        notes=_notes(law),
    )


def _law(traces: Sequence[Obtainable], size: int) -> ChosenLaw:
    """Of the gang: how long all of its machines could be had without a break."""
    lives = [runs_of([each // size for each in trace.machines], trace.gap_seconds, 1) for trace in traces]
    seconds, revoked = (np.concatenate([getattr(each, part) for each in lives]) for part in ("seconds", "revoked"))
    if not len(seconds):
        raise UserError(f"the trace never has {counted(size, 'machine')} at once; give another, or rent on demand")
    return law_of(type(lives[0])(seconds, revoked))


def _outcome(name: PolicyName, found: Played, independent: float) -> PolicyOutcome:
    known = np.isfinite(found.dollars)
    return PolicyOutcome(
        name=name,
        text=POLICIES[name],
        dollars=mean_of(found.dollars[known], independent) if known.any() else None,
        on_demand_hours=mean_of(found.on_demand_hours[known], independent) if known.any() else None,
        late=float(found.late.mean()),
        runs=len(found.late),
        late_interval=share_of(found.late, independent),
        revocations=None if name == "omniscient" else float(found.revocations.mean()),
    )


def _notes(law: ChosenLaw | None) -> tuple[str, ...]:
    return () if law is None else (f"how long all machines could be had: {law.why}",)


# One run ----------------------------------------------------------------------------------------------------


def _typical(played: Mapping[PolicyName, Played], starts: Integers) -> Integers:
    """The start of a run with as many revocations as the median one, under the policy that has most: [1]."""
    most = max(played.values(), key=lambda each: float(each.revocations.mean()))
    order = np.argsort(most.revocations, kind="stable")
    middle = int(order[len(order) // 2])
    return starts[middle : middle + 1]


def _course(name: PolicyName, job: SyncJob, market: SpotMarket, start: Integers) -> PolicyCourse:
    spans: list[HeldSpan] = []
    revoked, done, dollars, left = [], [(0.0, 0.0)], 0.0, job.work_seconds
    for number, tick in enumerate(course(name, job, market, start)):
        begin, held, mode = number * market.gap_seconds, float(tick.held_seconds[0]), int(tick.mode[0])
        dollars, left = dollars + float(tick.dollars[0]), float(tick.left[0])
        if tick.revoked[0]:
            revoked.append(begin)
        if mode != IDLE and held > 0:
            kind = "spot" if mode == SPOT else "on-demand"
            last = spans[-1] if spans else None
            if last is not None and last.held == kind and last.end == begin:
                spans[-1] = last.model_copy(update={"end": begin + held})
            else:
                spans.append(HeldSpan(begin=begin, end=begin + held, held=kind))
        done.append((min(begin + market.gap_seconds, job.deadline_seconds), 1 - left / job.work_seconds))
    return PolicyCourse(
        name=name, spans=tuple(spans), revoked=tuple(revoked), done=tuple(done), dollars=dollars, late=left > 0
    )


def _there(job: SyncJob, market: SpotMarket, start: Integers) -> tuple[tuple[float, float], ...]:
    window = market.there[start[0] : start[0] + ticks(job, market.gap_seconds)]
    edges = np.flatnonzero(np.diff(np.pad(window, 1).astype(int)))
    ends = np.minimum(edges * market.gap_seconds, job.deadline_seconds)
    return tuple(zip(ends[::2].tolist(), ends[1::2].tolist(), strict=True))


# What to do -------------------------------------------------------------------------------------------------


def _advice(outcomes: Sequence[PolicyOutcome], fixed: float, confidence: float, workers: int) -> str:
    """Which policy to take, or why none with spot machines."""
    able = [each for each in outcomes if each.name not in ("on-demand", "omniscient")]
    in_time = [each for each in able if 1 - each.late >= confidence]
    if not able:
        return f"on-demand costs ${fixed:.2f}; name a policy with spot machines to compare, like greedy or uniform"
    if not in_time:
        best = min(able, key=lambda each: each.late)
        return (
            f"refuse spot: even {best.name} is late in {best.late:.0%} of runs, and {1 - confidence:.0%} is what "
            f"--confidence allows; rent {counted(workers, 'machine')} on demand for ${fixed:.2f}"
        )
    best = min(in_time, key=lambda each: _mean(each.dollars))
    cost = _mean(best.dollars)
    if cost >= fixed:
        return f"refuse spot: {best.name} costs ${cost:.2f} in the mean, and on-demand ${fixed:.2f}"
    late = f"late in {best.late:.1%} of runs"
    how = "alone" if best.name == "spot" else f"with {best.name}"
    return f"take spot {how}: ${cost:.2f} in the mean, on-demand ${fixed:.2f}; {late}"


def _mean(dollars: Interval | None) -> float:
    return math.inf if dollars is None else dollars.value
