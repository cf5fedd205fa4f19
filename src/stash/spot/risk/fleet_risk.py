"""What revocations do to a plan: how probably it is in time, what it costs in the mean, and whether to refuse spot.

A replay where a record says what could be had, Monte Carlo with common random numbers else. What the pool says of its
own uncertainty counts in both. Prices are the plan's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy.special import ndtri

from stash.core.errors import UserError
from stash.core.intervals import Interval, mean_interval
from stash.predict.draws import Array, Bools
from stash.spot.choose.fleet_costs import FleetWish, on_spot
from stash.spot.records.fleets import FleetPlan
from stash.spot.records.risks import FleetRisk, Obtainable, TypeLife
from stash.spot.risk.lifetimes import HOUR, RevocationRate
from stash.spot.risk.replacing import FleetRuns, FleetSpeeds, affordable, by_rates, by_record, speeds

CONFIDENCE = 0.9
"""Of what a fleet's chance would be without revocations, where no confidence is asked for."""
RUNS, SEED = 10_000, 17
_NODES = 25
"""Draws of the uncertainty, evenly spread, that every tick of a record is asked with."""
MIN_INDEPENDENT = 2.0
"""Runs from which on there is an interval: a record as long as three runs has three, however many windows overlap."""
_Z = 1.959964


@dataclass(frozen=True)
class RiskOptions:
    """What is known of revocations."""

    rates: Mapping[str, RevocationRate]
    """By type; of every type that the plan rents on spot, where none was watched."""
    records: Mapping[str, Obtainable] = field(default_factory=dict)
    """What could be had of each type; empty where none was watched."""


def with_risk(plan: FleetPlan, options: RiskOptions, runs: int = RUNS) -> FleetPlan:
    """``plan`` with its risk; as it is where it rents nothing. Raises UserError where a record is too short."""
    if plan.chosen is None:
        return plan
    workers = plan.chosen.workers
    how: Literal["Monte Carlo", "replay"]
    if options.records:
        how = "replay"
        found, independent = _replayed(plan, options)
    else:
        how = "Monte Carlo"
        found = _drawn(plan, options, runs)
        independent = len(found.seconds)
    prices = {kind.name: kind.dollars_per_hour for kind in plan.pool.types}
    hourly = sum(count * prices[name] for name, count in workers.items())
    hourly += plan.pool.server.count * plan.pool.server.dollars_per_hour
    dollars = mean_of(np.minimum(found.seconds, plan.deadline_seconds) * hourly / HOUR, independent)
    p_deadline = share_of(np.isfinite(found.seconds), independent)
    fixed = _on_demand(plan)
    risk = FleetRisk(
        how=how,
        p_deadline=p_deadline,
        dollars=dollars,
        revocations=float(found.revocations.mean()),
        runs=len(found.seconds),
        lives=tuple(
            _life(name, options.rates[name]) for name in on_spot(plan.pool, workers) if name in options.rates
        ),
        on_demand_dollars=fixed,
        beyond=tuple(_beyond(plan, options, independent)),
        advice=_advice(plan, p_deadline.value, dollars.value, fixed),
    )
    return plan.model_copy(update={"risk": risk})


def _life(name: str, rate: RevocationRate) -> TypeLife:
    return TypeLife(type=name, mean_seconds=1 / rate.per_second if rate.per_second else None, why=rate.why)


def factors(plan: FleetPlan, count: int = _NODES) -> Array:
    """What the work comes to, 1 being what is predicted: evenly spread draws, [draw]."""
    deviation = FleetWish.of(plan).deviation
    if not deviation:
        return np.ones(1)
    found: Array = np.exp(deviation * ndtri((np.arange(count) + 0.5) / count))
    return found


def _speeds(plan: FleetPlan) -> FleetSpeeds:
    assert plan.chosen is not None
    names = [kind.name for kind in plan.pool.types]
    return speeds(FleetWish.of(plan), [(names.index(name), count) for name, count in plan.chosen.workers.items()])


def _drawn(plan: FleetPlan, options: RiskOptions, runs: int) -> FleetRuns:
    """Runs of a fleet whose workers are replaced one by one; those on demand are never revoked."""
    assert plan.chosen is not None
    fleet, known = _speeds(plan), options.rates
    rates = [known[name].per_second if name in known else 0.0 for name in plan.chosen.workers]
    generator = np.random.default_rng(SEED)
    runs = affordable(rates, fleet, plan.deadline_seconds, runs)
    works = factors(plan, runs)
    works = generator.permutation(works if len(works) > 1 else np.broadcast_to(works, (runs,)))
    return by_rates(fleet, rates, plan.pool.start_seconds, works, plan.deadline_seconds, generator)


def _replayed(plan: FleetPlan, options: RiskOptions) -> tuple[FleetRuns, float]:
    """Runs from every tick of the records that has a whole one after it, and how many of them are independent."""
    assert plan.chosen is not None
    gap = next(iter(options.records.values())).gap_seconds
    long = min(len(each.machines) for each in options.records.values())
    ticks = max(math.ceil(plan.deadline_seconds / gap - 1e-9), 1)
    if ticks > long:
        raise UserError(
            f"the trace is shorter than the job: it has {long * gap / HOUR:.1f} h, and the deadline is "
            f"{plan.deadline_seconds / HOUR:.1f} h; take a longer one, or give --interruptions"
        )
    fleet, starts = _speeds(plan), long - ticks + 1
    held = [
        np.array(options.records[name].machines[:long]) if name in options.records else np.full(long, count)
        for name, count in plan.chosen.workers.items()
    ]
    runs = [
        by_record(fleet, held, gap, plan.pool.start_seconds, np.full(starts, factor), plan.deadline_seconds)
        for factor in factors(plan)
    ]
    return FleetRuns.joined(runs), long / ticks


def mean_of(values: Array, independent: float) -> Interval:
    """The mean of ``values``, of which so many are independent, and its 95 % interval: unknown below two."""
    found = mean_interval(values.tolist())
    if independent < MIN_INDEPENDENT or found.half_width is None:
        return Interval(value=found.value, repetitions=len(values))
    arm = found.half_width * math.sqrt(len(values) / min(independent, len(values)))
    return Interval(value=found.value, low=found.value - arm, high=found.value + arm, repetitions=len(values))


def share_of(happened: Bools, independent: float) -> Interval:
    """The fraction that ``happened``, with Wilson's 95 % interval (JASA 22, 1927): unknown below two."""
    share, count = float(happened.mean()), min(independent, len(happened))
    if count < MIN_INDEPENDENT:
        return Interval(value=share, repetitions=len(happened))
    middle = (share + _Z**2 / (2 * count)) / (1 + _Z**2 / count)
    arm = _Z / (1 + _Z**2 / count) * math.sqrt(share * (1 - share) / count + (_Z / (2 * count)) ** 2)
    low = 0.0 if share == 0 else middle - arm  # which it is, but for rounding
    high = 1.0 if share == 1 else middle + arm
    return Interval(value=share, low=low, high=high, repetitions=len(happened))


def _on_demand(plan: FleetPlan) -> float | None:
    """In the mean, and paid until the deadline as spot machines are."""
    start = plan.pool.start_seconds
    for each in plan.baselines:
        if each.name == "on-demand" and each.feasible and each.fleet is not None:
            seconds = start + (each.fleet.seconds - start) * factors(plan)
            paid = float(np.minimum(seconds, plan.deadline_seconds).mean())
            return each.fleet.dollars * paid / each.fleet.seconds
    return None


def keeps_limits(plan: FleetPlan) -> bool:
    """Whether it is in time as often as is asked for with revocations, and in the mean within the budget.

    Without a confidence a tenth of the chance may be lost.
    """
    assert plan.risk is not None
    return plan.risk.p_deadline.value >= _least_chance(plan) and not _too_dear(plan, plan.risk.dollars.value)


def _too_dear(plan: FleetPlan, dollars: float) -> bool:
    return plan.budget_dollars is not None and dollars > plan.budget_dollars * (1 + 1e-9)


def kept(plan: FleetPlan) -> bool:
    """Whether the plan rents something that does what was asked, with revocations too where those are known."""
    if plan.chosen is None or plan.risk is None:
        return plan.chosen is not None
    return not _too_dear(plan, plan.risk.dollars.value) if plan.confidence is None else keeps_limits(plan)


def _least_chance(plan: FleetPlan) -> float:
    return CONFIDENCE * _without(plan) if plan.confidence is None else plan.confidence


def _without(plan: FleetPlan) -> float:
    """P(deadline) without revocations; 1 where the error of the plan is unstated."""
    assert plan.chosen is not None
    return 1.0 if plan.chosen.p_deadline is None else plan.chosen.p_deadline


def _advice(plan: FleetPlan, p_deadline: float, dollars: float, fixed: float | None) -> str:
    """Whether to take spot, or why not."""
    assert plan.chosen is not None
    rest = "no fleet on demand is known to do it" if fixed is None else f"on-demand costs ${fixed:.2f}"
    if not on_spot(plan.pool, plan.chosen.workers):
        return (
            f"refuse spot: on-demand costs ${dollars:.2f}, and no fleet with spot machines is in time often enough "
            f"for less; in time with probability {p_deadline:.2f}"
        )
    if p_deadline < _least_chance(plan):
        asked = (
            f"without revocations it would be with {_without(plan):.2f}"
            if plan.confidence is None
            else f"--confidence asks for {plan.confidence:g}"
        )
        return f"refuse spot: with revocations it is in time with probability {p_deadline:.2f}, and {asked}; {rest}"
    if _too_dear(plan, dollars):
        return (
            f"refuse spot: with revocations it costs ${dollars:.2f} in the mean, and --max-dollars allows "
            f"${plan.budget_dollars:.2f}; {rest}"
        )
    if fixed is not None and dollars >= fixed:
        return f"refuse spot: it costs ${dollars:.2f} in the mean, and on-demand ${fixed:.2f}"
    return f"take spot: ${dollars:.2f} in the mean, {rest}; in time with probability {p_deadline:.2f}"


def _beyond(plan: FleetPlan, options: RiskOptions, independent: float) -> Iterator[str]:
    assert plan.chosen is not None
    if sum(plan.chosen.workers[name] for name in options.rates) > 1 and not options.records:
        yield "machines are taken to be revoked independently of each other"
    if options.records and independent < MIN_INDEPENDENT:
        yield "the trace holds less than two whole runs one after the other, so it is unknown how sure this is"
