"""What revocations do to a plan: how probably it is in time, what it costs in the mean, and whether to refuse spot.

Machines are revoked at stated rates, the same at any age, each by itself. Servers keep the parameters: a revocation
loses its worker's gradient under way and the time until another has joined; the others go on, at the speed of a
smaller fleet. With the loss model as it is, a fleet that would take T seconds does 1 / T of the work in a second,
whatever did the rest. Another machine is asked for at once, and is paid from then on. Runs are drawn with the same
random numbers for every fleet; what the pool says of its own uncertainty counts. Prices are the plan's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from stash.api import Array
from stash.core.distributions import normal_quantile
from stash.core.errors import UserError
from stash.core.intervals import Interval, mean_interval
from stash.core.units import MONTH_HOURS
from stash.spot.fleet_costs import HOUR, FleetWish, all_fleets, revocable_types
from stash.spot.fleet_records import FleetPlan, FleetRisk, InterruptionBand, TypeLife

CONFIDENCE = 0.9
"""Of what a fleet's chance would be without revocations, where no confidence is asked for."""
RUNS = 10_000
SEED = 17
_NODES = 25
"""Draws of the uncertainty, evenly spread, where a mean is computed without runs."""
_MAX_MARKS = 16_000_000
"""Joins and revocations held at once: some 400 MB."""
_MAX_LIVES = 100_000
"""Of one worker in one run."""


def _explain_band(band: InterruptionBand) -> str:
    low = _share_of_month(band.low)
    high = _share_of_month(band.high)
    if band.low == band.high:
        return f"stated: {high}; taken as memoryless"
    return f"stated: {low} to {high}; taken as memoryless at the upper end"


def _share_of_month(rate: float) -> str:
    """A rate per hour, as the share of machines that go in a month where it is low, as clouds state it."""
    monthly = -math.expm1(-rate * MONTH_HOURS)
    return f"{100 * monthly:.2g}% a month" if monthly < 0.5 else f"{rate:.2g} an hour"


def add_risk(plan: FleetPlan, bands: Mapping[str, InterruptionBand], runs: int = RUNS) -> FleetPlan:
    """``plan`` with its risk; as it is where it rents nothing.

    ``bands``: how often machines of each type go, of which the upper end counts. Raises UserError where that of a
    type on spot is missing.
    """
    if plan.chosen is None:
        return plan
    workers, on_market = plan.chosen.workers, revocable_types(plan.pool, plan.chosen.workers)
    missing = next((name for name in on_market if name not in bands), None)
    if missing is not None:
        raise UserError(
            f"how often {missing} is revoked is unknown; give --interruptions {missing}=10%/month"
        )
    rates = [bands[name].high / HOUR if name in on_market else 0.0 for name in workers]
    seconds, revocations = _draw_runs(plan, rates, runs)
    counts = np.array([workers.get(kind.name, 0) for kind in plan.pool.types])
    hourly = FleetWish.read_plan(plan).hourly_dollars(counts)
    dollars = mean_interval((np.minimum(seconds, plan.deadline_seconds) * hourly / HOUR).tolist())
    p_deadline = float(np.isfinite(seconds).mean())
    fixed = _dollars_on_demand(plan)
    lives = tuple(
        TypeLife(
            type=name,
            mean_seconds=HOUR / bands[name].high if bands[name].high else None,
            why=_explain_band(bands[name]),
        )
        for name in on_market
    )
    independent = "machines are taken to be revoked independently of each other"
    risk = FleetRisk(
        how="Monte Carlo",
        p_deadline=Interval(value=p_deadline, repetitions=len(seconds)),
        dollars=dollars,
        revocations=float(revocations.mean()),
        runs=len(seconds),
        lives=lives,
        on_demand_dollars=fixed,
        beyond=(independent,) if sum(workers[name] for name in on_market) > 1 else (),
        advice=_advice(plan, p_deadline, dollars.value, fixed),
    )
    return plan.model_copy(update={"risk": risk})


def work_factors(plan: FleetPlan, count: int = _NODES) -> Array:
    """What the work comes to, 1 being what is predicted: evenly spread draws, [draw]."""
    deviation = FleetWish.read_plan(plan).deviation
    if not deviation:
        return np.ones(count)
    found: Array = np.exp(deviation * normal_quantile((np.arange(count) + 0.5) / count))
    return found


def mean_dollars(plan: FleetPlan, hourly: Array, seconds: Array) -> Array:
    """Mean dollars of fleets that nobody revokes, paid until the deadline at most; ``hourly`` prices: [fleet]."""
    start = plan.pool.start_seconds
    factors = work_factors(plan)
    finite = np.where(np.isfinite(seconds), seconds, plan.deadline_seconds)
    paid = np.zeros_like(hourly)
    for factor in factors:
        paid += np.minimum(start + (finite - start) * factor, plan.deadline_seconds)
    found: Array = paid / len(factors) * hourly / HOUR
    return found


def _dollars_on_demand(plan: FleetPlan) -> float | None:
    """Of the cheapest fleet on demand."""
    fleet = next((each.fleet for each in plan.baselines if each.feasible), None)
    if fleet is None:
        return None
    hourly = np.array([fleet.dollars / fleet.seconds * HOUR])
    seconds = np.array([fleet.seconds])
    return float(mean_dollars(plan, hourly, seconds)[0])


def keeps_limits(plan: FleetPlan) -> bool:
    """Whether it is in time as often as is asked for with revocations.

    Without a confidence a tenth of the chance may be lost.
    """
    assert plan.risk is not None
    return plan.risk.p_deadline.value >= _least_chance(plan)


def can_keep_wish(plan: FleetPlan) -> bool:
    """Whether the plan rents something that does what was asked, with revocations too where those are known."""
    if plan.chosen is None or plan.risk is None or plan.confidence is None:
        return plan.chosen is not None
    return keeps_limits(plan)


def _least_chance(plan: FleetPlan) -> float:
    """Of being in time; where none is asked for a share of that without revocations, 1 if its error is unstated."""
    if plan.confidence is not None:
        return plan.confidence
    assert plan.chosen is not None
    return CONFIDENCE * (1.0 if plan.chosen.p_deadline is None else plan.chosen.p_deadline)


UNKNOWN_ERROR = "the pool does not say how wrong its numbers are"


def chance_text(plan: FleetPlan, p_deadline: float) -> str:
    """How probably it is in time: what revocations alone leave of it is no probability where its error is unknown."""
    if FleetWish.read_plan(plan).deviation is None:
        return f"in time with unknown probability, as {UNKNOWN_ERROR}"
    return f"in time with probability {p_deadline:.2f}"


def _advice(plan: FleetPlan, p_deadline: float, dollars: float, fixed: float | None) -> str:
    """Whether to take spot, or why not."""
    assert plan.chosen is not None
    likely = chance_text(plan, p_deadline)
    rest = (
        "no fleet on demand is known to do it" if fixed is None else f"on-demand costs ${fixed:.2f}"
    )
    if not revocable_types(plan.pool, plan.chosen.workers):
        return (
            f"refuse spot: on-demand costs ${dollars:.2f}, and no fleet with spot machines is in time often enough "
            f"for less; {likely}"
        )
    if p_deadline < _least_chance(plan):
        if FleetWish.read_plan(plan).deviation is None:
            late = f"revocations alone make {1 - p_deadline:.0%} of runs late"
            return f"refuse spot: {late}, and how wrong the plan is besides is unknown; {rest}"
        asked = (
            f"without revocations it would be with {plan.chosen.p_deadline:.2f}"
            if plan.confidence is None
            else f"--confidence asks for {plan.confidence:g}"
        )
        return f"refuse spot: with revocations it is in time with probability {p_deadline:.2f}, and {asked}; {rest}"
    if fixed is not None and dollars >= fixed:
        return f"refuse spot: it costs ${dollars:.2f} in the mean, and on-demand ${fixed:.2f}"
    return f"take spot: ${dollars:.2f} in the mean, {rest}; {likely}"


# Runs of a fleet whose workers are replaced one by one


def part_speeds(wish: FleetWish, workers: Mapping[str, int]) -> Array:
    """Work done in a second, 1 being all of it, by every part of a fleet.

    Of ``workers`` by type, in their order: [machines of the first type, of the second, …].
    """
    kinds = {kind.name: kind for kind in wish.pool.types}
    types = tuple(
        kinds[name].model_copy(update={"quota": count}) for name, count in workers.items()
    )
    found = all_fleets(replace(wish, pool=wish.pool.model_copy(update={"types": types})))
    training = found.updates / found.progress.updates_per_second
    rates = np.where(np.isfinite(found.seconds), 1 / training, 0.0)
    return np.concatenate([[0.0], rates]).reshape([count + 1 for count in workers.values()])


def _draw_runs(plan: FleetPlan, rates: Sequence[float], runs: int) -> tuple[Array, Array]:
    """``runs`` of the plan's fleet, or as many as there is room for, where revocations are many."""
    assert plan.chosen is not None
    workers = plan.chosen.workers
    speeds = part_speeds(FleetWish.read_plan(plan), workers)
    revocations = plan.deadline_seconds * np.array(rates)
    marks = float(np.array(list(workers.values())) @ (2 + 2 * revocations))
    works = work_factors(plan, max(min(runs, int(_MAX_MARKS / marks)), 2))
    generator = np.random.default_rng(SEED)
    works = generator.permutation(works)
    start = plan.pool.start_seconds
    return revoked_runs(speeds, rates, start, works, plan.deadline_seconds, generator)


def revoked_runs(
    speeds: Array,
    rates: Sequence[float],
    join: float,
    work: Array,
    deadline: float,
    generator: np.random.Generator,
) -> tuple[Array, Array]:
    """Runs of workers that are revoked at these rates, a second, one a type.

    ``speeds`` are those of ``part_speeds``; ``work`` is what each run has to do, 1 being what is predicted: [run].
    Returns seconds until all work is done, infinite where that is not before the deadline, and revocations until
    then: [run]. Moments in which some run's fleet changes are [run, moment].
    """
    runs = len(work)
    whole = [count - 1 for count in speeds.shape]
    moments = []
    types = []
    changes = []
    for number, (rate, count) in enumerate(zip(rates, whole, strict=True)):
        for born, gone in _lives(rate, count, deadline, runs, generator):
            for moment, change in ((np.minimum(born + join, gone), 1), (gone, -1)):
                moments.append(np.minimum(moment, deadline))
                types += [number] * count
                changes += [change] * count
    when = np.concatenate(moments, axis=1)
    order = np.argsort(when, axis=1)
    when = np.take_along_axis(when, order, axis=1)
    kind = np.array(types)[order]
    step = np.array(changes)[order]
    # Of marks at one moment the joins may come first; clipped, such a sum lasts no time.
    there = tuple(
        np.clip(np.cumsum(np.where(kind == each, step, 0), axis=1), 0, most)
        for each, most in enumerate(whole)
    )
    speed = speeds[there]
    until = np.concatenate([when[:, 1:], np.full((runs, 1), deadline)], axis=1)
    done = np.cumsum(speed * (until - when), axis=1)
    rows = np.arange(runs)
    reached = (done >= work[:, None]).argmax(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        early = (done[rows, reached] - work) / speed[rows, reached]
    ends = np.where(done[:, -1] >= work, until[rows, reached] - early, np.inf)
    revoked = (step < 0) & (when < deadline) & (when < ends[:, None])
    return ends, revoked.sum(axis=1).astype(float)


def _lives(
    rate: float, count: int, deadline: float, runs: int, generator: np.random.Generator
) -> Iterator[tuple[Array, Array]]:
    """(when machines are asked for, when they are gone) of ``count`` workers, life after life: [run, worker]."""
    born = np.zeros((runs, count))
    for _ in range(_MAX_LIVES):
        drawn = -np.log(1 - generator.random((runs, count)))
        gone = born + drawn / rate if rate else np.full((runs, count), math.inf)  # on demand: never
        yield born, gone
        born = np.minimum(gone, deadline)
        if (born >= deadline).all():
            return
