"""A plan's fleet held on spot as long as it lasts: what each policy costs, how often it is late, and which to take.

Runs begin at random ticks of a record of what was obtainable. Advice is against spot where on-demand costs no more in
the mean, or where nothing with spot machines is in time often enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from stash.base.errors import UserError
from stash.base.spot.fleets import FleetPlan, Obtainable, PolicyOutcome, SpotSimulation
from stash.base.stats.intervals import Interval, mean_interval
from stash.base.words.counting import counted
from stash.derive.spot.policies import POLICIES, GangJob, Played, PolicyName, play, ticks

HINDSIGHTS = 25
"""Runs of the omniscient policy, each a program of its own: the first of all."""
_MOST_TICKS = 300
_CONFIDENCE = 0.9


def gang(plan: FleetPlan) -> GangJob:
    """The plan's fleet as a job; raises UserError where the plan has none, or lacks a price."""
    if plan.chosen is None:
        raise UserError("the plan rents nothing, so there is nothing to simulate; plan again with looser wishes")
    kinds = {kind.name: kind for kind in plan.pool.types}
    for name in plan.chosen.workers:
        if kinds[name].on_demand_dollars_per_hour is None:
            raise UserError(
                f"no on-demand price of {name} is known; add on_demand_dollars_per_hour to the pool and plan again"
            )
    server = plan.pool.server.count * plan.pool.server.dollars_per_hour
    prices = [
        (count * kinds[name].dollars_per_hour, count * (kinds[name].on_demand_dollars_per_hour or math.nan))
        for name, count in plan.chosen.workers.items()
    ]
    return GangJob(
        work_seconds=plan.chosen.seconds - plan.pool.start_seconds,
        deadline_seconds=plan.deadline_seconds,
        change_seconds=plan.pool.start_seconds,
        spot_dollars=sum(spot for spot, _ in prices) + server,
        on_demand_dollars=sum(fixed for _, fixed in prices) + server,
    )


def simulate(
    plan: FleetPlan, record: Obtainable, names: Sequence[PolicyName], runs: int = 10_000, seed: int = 17
) -> SpotSimulation:
    """Each policy over as many ``runs``; raises UserError where the record is too short for one."""
    job = gang(plan)
    assert plan.chosen is not None
    workers = sum(plan.chosen.workers.values())
    long, gap = ticks(job, record.gap_seconds), record.gap_seconds
    if long > len(record.machines):
        has = len(record.machines) * gap / 3600
        raise UserError(
            f"the trace is shorter than the job: it has {has:.1f} h, and the deadline is "
            f"{job.deadline_seconds / 3600:.1f} h; take a longer one"
        )
    if "omniscient" in names and long > _MOST_TICKS:
        raise UserError(
            f"--policy omniscient weighs every tick of a run, {_MOST_TICKS} at most, and this one has {long:,}; "
            "leave it out, or take a trace with a longer gap"
        )
    there = np.array(record.machines) >= workers
    starts = np.random.default_rng(seed).integers(0, len(there) - long + 1, runs)
    played = {
        name: play(name, job, there, gap, starts[: HINDSIGHTS if name == "omniscient" else runs]) for name in names
    }
    outcomes = tuple(_outcome(name, found) for name, found in played.items())
    reference = _outcome("on-demand", played.get("on-demand") or play("on-demand", job, there, gap, starts))
    return SpotSimulation(
        workers=plan.chosen.workers,
        obtainable=float(there.mean()),
        runs=runs,
        seed=seed,
        policies=outcomes,
        advice=_advice(outcomes, reference, plan.confidence or _CONFIDENCE, workers),
    )


def _outcome(name: PolicyName, found: Played) -> PolicyOutcome:
    known = np.isfinite(found.dollars)
    return PolicyOutcome(
        name=name,
        text=POLICIES[name],
        dollars=mean_interval(found.dollars[known].tolist()) if known.any() else None,
        on_demand_hours=mean_interval(found.on_demand_hours[known].tolist()) if known.any() else None,
        late=float(found.late.mean()),
        runs=len(found.late),
    )


def _advice(outcomes: Sequence[PolicyOutcome], reference: PolicyOutcome, confidence: float, workers: int) -> str:
    """Which policy to take, or why none with spot machines."""
    fixed = _mean(reference.dollars)
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
    return f"take spot with {best.name}: ${cost:.2f} in the mean, on-demand ${fixed:.2f}; {late}"


def _mean(dollars: Interval | None) -> float:
    return math.inf if dollars is None else dollars.value
