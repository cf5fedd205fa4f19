"""Which fleet to rent where machines are revoked: the cheapest in the mean that is in time often enough.

Revocations only delay, and all is paid until the end or the deadline: what a fleet costs in the mean without them
bounds what it costs with them. So fleets are reckoned from the cheapest on, until the next one's bound is above the
best one's cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from stash.base.errors import UserError
from stash.base.spot.fleets import CostedFleet, FleetPlan, RunnerUp
from stash.derive.predict.draws import Array
from stash.derive.spot.enumeration import MOST_FLEETS, everything, fleets
from stash.derive.spot.provision import compared
from stash.derive.spot.risk import Danger, factors, in_time_enough, reckoned
from stash.derive.spot.weighing import HOUR, FleetWish, costed

DangerOf = Callable[[Mapping[str, int]], Danger]
"""Of a fleet, machines by type; raises UserError where nobody says how long one of its types lives."""
_MOST = 100
"""Fleets that are reckoned: some seconds."""
_RUNS = 400
"""Of each; those that may be chosen are played in full."""
_RUNNERS_UP = 3


@dataclass(frozen=True)
class _Bounded:
    """A fleet that would do if nobody were revoked."""

    fleet: CostedFleet
    dollars: float
    """That it costs in the mean, at least."""


def venture(plan: FleetPlan, danger_of: DangerOf) -> FleetPlan:
    """``plan`` with the risk of the fleet that is best with revocations, which may be another than the cheapest.

    Where none is in time often enough it stays with the cheapest, whose ``risk.advice`` says so. Raises UserError.
    """
    if plan.chosen is None:
        return plan
    first = reckoned(plan, danger_of(plan.chosen.workers))
    tried, cut_short = _tried(plan, danger_of)
    good = sorted((each for each in tried if in_time_enough(each)), key=_mean)
    best = next(filter(in_time_enough, (_in_full(each, danger_of) for each in good)), first)
    if best.chosen == plan.chosen:
        return _counting(first, len(tried))
    least = _mean(best)
    beside = [each for each in good if each.chosen not in (best.chosen, plan.chosen)][: _RUNNERS_UP - 1]
    update = {
        "optimal": cut_short is None,
        "gap": 0.0 if cut_short is None else max(0.0, 1 - cut_short / least),
        "runners_up": tuple(_runner_up(each, least) for each in (*beside, first)),
    }
    return _counting(best, len(tried)).model_copy(update=update)


def _in_full(found: FleetPlan, danger_of: DangerOf) -> FleetPlan:
    assert found.chosen is not None
    return reckoned(found, danger_of(found.chosen.workers))


def _tried(plan: FleetPlan, danger_of: DangerOf) -> tuple[list[FleetPlan], float | None]:
    """Fleets reckoned, the plan's own first, and the bound of the first that there was no time for, if any."""
    tried: list[FleetPlan] = []
    least = float("inf")
    for candidate in _candidates(plan):
        if candidate.dollars >= least:
            break
        if len(tried) >= _MOST:
            return tried, candidate.dollars
        try:
            danger = danger_of(candidate.fleet.workers)
        except UserError:
            continue  # of its types something is not known; of those in the plan's own fleet all is
        found = reckoned(plan.model_copy(update={"chosen": candidate.fleet}), danger, _RUNS)
        tried.append(found)
        if in_time_enough(found):
            least = min(least, _mean(found))
    return tried, None


def _candidates(plan: FleetPlan) -> Iterator[_Bounded]:
    """The plan's fleet, then all others that would do undisturbed, the least bound first."""
    assert plan.chosen is not None
    wish = FleetWish(plan.pool, plan.model, plan.loss, plan.deadline_seconds, plan.confidence, plan.budget_dollars)
    own = np.array([plan.chosen.workers.get(kind.name, 0) for kind in plan.pool.types], dtype=float)
    counts, weighed = compared(wish, own, everything(wish) if fleets(wish) <= MOST_FLEETS else None)
    bounds = _bounds(plan, counts @ wish.prices + wish.server_price, weighed.seconds)
    mine = (counts == own).all(axis=1)
    yield _Bounded(plan.chosen, 0.0)
    for at in np.argsort(np.where(weighed.feasible & ~mine, bounds, np.inf), kind="stable"):
        if not weighed.feasible[at] or mine[at]:
            return
        yield _Bounded(costed(wish, counts[at]), float(bounds[at]))


def _bounds(plan: FleetPlan, hourly: Array, seconds: Array) -> Array:
    """Mean dollars of each fleet if nobody is revoked, paid until the deadline at most: [fleet]."""
    start, work = plan.pool.start_seconds, factors(plan)
    finite = np.where(np.isfinite(seconds), seconds, plan.deadline_seconds)
    paid = np.zeros_like(hourly)
    for factor in work:
        paid += np.minimum(start + (finite - start) * factor, plan.deadline_seconds)
    bounds: Array = paid / len(work) * hourly / HOUR
    return bounds


def _mean(found: FleetPlan) -> float:
    assert found.risk is not None
    return found.risk.dollars.value


def _runner_up(found: FleetPlan, least: float) -> RunnerUp:
    assert found.chosen is not None
    assert found.risk is not None
    chance = f"in time with probability {found.risk.p_deadline.value:.2f}"
    if in_time_enough(found):
        why = f"costs ${_mean(found) - least:.3f} more in the mean with revocations, {chance}"
    else:
        why = f"the cheapest if nobody were revoked; with revocations {chance}"
    return RunnerUp(fleet=found.chosen, why=why)


def _counting(found: FleetPlan, weighed: int) -> FleetPlan:
    assert found.risk is not None
    return found.model_copy(update={"risk": found.risk.model_copy(update={"weighed": weighed})})
