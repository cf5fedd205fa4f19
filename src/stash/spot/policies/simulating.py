"""A plan's fleet held on spot as long as it lasts: what each policy costs, how often it is late, and which to take.

Runs begin at random ticks of records of what was obtainable. Advice is against spot where on-demand costs no more in
the mean, or where nothing with spot machines is in time as often as was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from stash.core.errors import UserError
from stash.core.units import counted
from stash.predict.draws import Array
from stash.spot.choose.fleet_costs import HOUR, LONGEST, on_spot
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
    names: Sequence[PolicyName] = tuple(POLICIES),
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
    market, possible, independent = _recorded(plan, base, traces, prices or {})
    checkpoint: CheckpointInterval | None = None
    notes: tuple[str, ...] = ()
    if write_seconds is not None:
        law = _gang_law(traces, sum(revocable(plan).values()))
        notes = (f"how long all machines could be had: {law.why}",)
        checkpoint = interval(write_seconds, Gang(((law.law, 1),)), plan.pool.start_seconds, notice_seconds)
    job = gang(plan, checkpoint)
    starts = np.random.default_rng(seed).choice(possible, runs)
    played = {name: play(name, job, market, starts) for name in names}
    fixed = played.get("on-demand") or play("on-demand", job, market, starts)
    outcomes = tuple(_outcome(name, each, independent) for name, each in played.items())
    shown = _typical(played, starts)
    window = market.there[shown[0] : shown[0] + ticks(job, market.gap_seconds)]
    edges = np.flatnonzero(np.diff(np.pad(window, 1).astype(int)))
    ends = np.minimum(edges * market.gap_seconds, job.deadline_seconds)
    return SpotSimulation(
        workers=plan.chosen.workers,
        obtainable=float(market.there.mean()),
        runs=runs,
        seed=seed,
        policies=outcomes,
        advice=_advice(
            outcomes,
            float(fixed.dollars.mean()),
            plan.confidence or _CONFIDENCE,
            sum(plan.chosen.workers.values()),
        ),
        mode="asynchronous" if checkpoint is None else "synchronous",
        checkpoint=checkpoint,
        independent=independent,
        deadline_seconds=job.deadline_seconds,
        courses=tuple(_course(name, job, market, shown) for name in names),
        there=tuple(zip(ends[::2].tolist(), ends[1::2].tolist(), strict=True)),
        notes=notes,
    )


def _gang_law(traces: Sequence[Obtainable], size: int) -> ChosenLaw:
    """How long all machines of the gang could be had without a break."""
    lives = [runs_of([each // size for each in trace.machines], trace.gap_seconds, 1) for trace in traces]
    seconds, revoked = (np.concatenate([getattr(each, part) for each in lives]) for part in ("seconds", "revoked"))
    if not len(seconds):
        raise UserError(f"the trace never has {counted(size, 'machine')} at once; give another, or rent on demand")
    return law_of(type(lives[0])(seconds, revoked))


def _outcome(name: PolicyName, found: Played, independent: float) -> PolicyOutcome:
    return PolicyOutcome(
        name=name,
        text=POLICIES[name],
        dollars=mean_of(found.dollars, independent),
        on_demand_hours=mean_of(found.on_demand_hours, independent),
        late=float(found.late.mean()),
        runs=len(found.late),
        late_interval=share_of(found.late, independent),
        revocations=float(found.revocations.mean()),
    )


def _typical(played: Mapping[PolicyName, Played], starts: Integers) -> Integers:
    """The start of a run with as many revocations as the median one, under the policy that has most: [1]."""
    most = max(played.values(), key=lambda each: float(each.revocations.mean()))
    order = np.argsort(most.revocations, kind="stable")
    middle = int(order[len(order) // 2])
    return starts[middle : middle + 1]


def _course(name: PolicyName, job: SyncJob, market: SpotMarket, start: Integers) -> PolicyCourse:
    """One run as a policy did it."""
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


def _advice(outcomes: Sequence[PolicyOutcome], fixed: float, confidence: float, workers: int) -> str:
    """Which policy to take, or why none with spot machines."""
    able = [each for each in outcomes if each.name != "on-demand"]
    in_time = [each for each in able if 1 - each.late >= confidence]
    if not able:
        return f"on-demand costs ${fixed:.2f}; name a policy with spot machines to compare, like greedy or uniform"
    if not in_time:
        best = min(able, key=lambda each: each.late)
        return (
            f"refuse spot: even {best.name} is late in {best.late:.0%} of runs, and {1 - confidence:.0%} is what "
            f"--confidence allows; rent {counted(workers, 'machine')} on demand for ${fixed:.2f}"
        )
    best = min(in_time, key=lambda each: each.dollars.value)
    cost = best.dollars.value
    if cost >= fixed:
        return f"refuse spot: {best.name} costs ${cost:.2f} in the mean, and on-demand ${fixed:.2f}"
    late = f"late in {best.late:.1%} of runs"
    how = "alone" if best.name == "spot" else f"with {best.name}"
    return f"take spot {how}: ${cost:.2f} in the mean, on-demand ${fixed:.2f}; {late}"


# Traces and prices as the market of one gang


def revocable(plan: FleetPlan) -> dict[str, int]:
    """The chosen workers that come and go; raises UserError if there are none."""
    workers = {} if plan.chosen is None else plan.chosen.workers
    found = {name: workers[name] for name in on_spot(plan.pool, workers)}
    if not found:
        raise UserError(
            "the plan rents nothing on spot, so there is nothing to simulate; take a plan with spot machines"
        )
    return found


def together(workers: Mapping[str, int], traces: Mapping[str, Obtainable]) -> Obtainable:
    """Traces of each type as one of the gang: all of its machines, or none. Raises UserError if they do not match."""
    missing = next((name for name in workers if name not in traces), None)
    if missing is not None:
        raise UserError(f"no trace of {missing} is given; add --trace {missing}=FILE")
    used = [traces[name] for name in workers]
    if len({each.gap_seconds for each in used}) > 1 or len({each.start_seconds for each in used}) > 1:
        raise UserError("the traces of the types differ in gap_seconds or start; give some of the same time")
    rows = zip(*(each.machines for each in used), strict=False)
    whole = [all(have >= need for have, need in zip(row, workers.values(), strict=True)) for row in rows]
    size = sum(workers.values())
    return used[0].model_copy(update={"machines": tuple(size * each for each in whole)})


def _recorded(
    plan: FleetPlan, job: SyncJob, traces: Sequence[Obtainable], prices: Mapping[str, SpotPrices]
) -> tuple[SpotMarket, Integers, float]:
    """The traces one after the other as the market of the plan's gang, and from which ticks on runs can be had of it.

    Those have a whole run of their trace after them; last, how many whole runs the traces hold one after the other.
    A price holds until the next one; without ``prices`` they are the plan's. Types that a plan rents on demand can
    always be had, but the gang holds them only with the others.

    Raises UserError where the traces have different gaps, none is as long as a run, or a price is not known.
    """
    assert plan.chosen is not None
    gaps = sorted({each.gap_seconds for each in traces})
    if len(gaps) > 1:
        raise UserError(f"the traces have different gaps ({gaps[0]:g} and {gaps[-1]:g} s); give some with the same")
    gap, long = gaps[0], ticks(job, gaps[0])
    size = sum(revocable(plan).values())
    there, dollars, starts, before, independent = [], [], [], 0, 0.0
    for trace in traces:
        count = len(trace.machines)
        there.append(np.array(trace.machines) >= size)
        dollars.append(_dollars(plan, prices, gap * np.arange(float(count)), trace.start_seconds))
        starts.append(np.arange(before, before + count - long + 1))
        before += count
        independent += count / long if count >= long else 0.0
    if not independent:
        has, needs = max(len(each.machines) for each in traces) * gap / HOUR, job.deadline_seconds / HOUR
        raise UserError(
            f"the trace is shorter than the job: it has {has:.1f} h, and the deadline is {needs:.1f} h; "
            "take a longer one"
        )
    return SpotMarket(gap, np.concatenate(there), np.concatenate(dollars)), np.concatenate(starts), independent


def _dollars(plan: FleetPlan, prices: Mapping[str, SpotPrices], after: Array, begin: float | None) -> Array:
    """$/h of the gang on spot, servers included, ``after`` seconds from the trace's begin: [tick]."""
    assert plan.chosen is not None
    workers, spot = plan.chosen.workers, revocable(plan)
    kinds = {kind.name: kind for kind in plan.pool.types}
    steady = [name for name in workers if not prices or name not in spot]
    total = np.full(len(after), plan.pool.server.count * plan.pool.server.dollars_per_hour)
    total += sum(workers[name] * kinds[name].dollars_per_hour for name in steady)
    moving = {name: count for name, count in spot.items() if name not in steady}
    if not moving:
        return total
    missing = next((name for name in moving if name not in prices), None)
    if missing is not None:
        raise UserError(f"the spot price of {missing} is unknown: --prices has {', '.join(sorted(prices))}; add it")
    first = max(prices[name].moments[0] for name in moving)
    moments = (first if begin is None else begin) + after
    for name, count in moving.items():
        series = prices[name]
        at = np.searchsorted(np.array(series.moments), moments, side="right") - 1
        if at[0] < 0:
            raise UserError(
                f"the spot price of {name} is unknown when the trace begins: --prices begins "
                f"{(series.moments[0] - moments[0]) / HOUR:.1f} h later; add earlier ones"
            )
        total = total + count * np.array(series.dollars)[at]
    return total
