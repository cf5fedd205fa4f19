"""From a profile, a learned curve and offers to the cheapest fleet in time, with revocations where there are any.

Pure: asks no cloud and reads no file. Knows what follows what; each step is another module's.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, timezone

import numpy as np

from stash.api import Catalog, Offer, forecast_base, shipped_catalog
from stash.core.errors import UserError
from stash.core.records.profile import Profile
from stash.spot.fleet_costs import (
    FleetWish,
    all_fleets,
    cost_fleet,
    rent_on_demand,
)
from stash.spot.fleet_records import FleetModel, FleetPlan, FleetPool, InterruptionBand, RunnerUp
from stash.spot.model.market import market_of
from stash.spot.model.pool import MAX_SPREAD, pools_of, server_bytes
from stash.spot.provision import provision
from stash.spot.risk import add_risk, chance_text, keeps_limits, mean_dollars
from stash.spot.run_records import LearnedCurve

_MAX_WEIGHED = 200_000
"""Fleets with servers: a few seconds."""
_MAX = 160
_SECONDS = 10.0
"""Fleets whose risk is computed, and processor seconds, which many revocations take."""
_RUNS = 400
"""Of each; those that may be chosen are played in full."""
_RUNNERS_UP = 3
_MILL = 0.001
"""Dollars: so many runs do not resolve less."""


def plan(
    profile: Profile,
    curve: LearnedCurve,
    offers: Iterable[Offer],
    *,
    deadline: float,
    loss: float,
    quotas: Mapping[str, int],
    servers: int = 1,
    start: float = 0.0,
    confidence: float | None = None,
    fleet: FleetModel | None = None,
    source: str = "the profile",
    today: date | None = None,
    catalog: Callable[[], Catalog] = shipped_catalog,
) -> FleetPlan:
    """The cheapest fleet of spot workers and on-demand servers that reaches ``loss`` within ``deadline`` seconds.

    ``offers`` are what may be rented, spot and on demand, of GPUs and without, as ``stash.catalog.query`` has
    them; ``quotas`` how many of which types. ``start`` is seconds from the request to the first update,
    ``confidence`` the probability of being in time, from the forecasts' and the curve's own errors.
    ``fleet`` is what ``stash spot fit`` learned of fleets that were timed; ``catalog`` has the facts of the types.
    Raises UserError for what is needed and not known.
    """
    base = forecast_base(profile, catalog=catalog)
    market = market_of(offers, quotas, servers, start, server_bytes(curve, servers))
    pools = pools_of(base, source, curve, market, loss, today or datetime.now(timezone.utc).date())
    if confidence is not None and pools[0].uncertainty is None:
        raise UserError(
            f"--confidence {confidence:g}: how wrong the forecast or the curve is, is not known (leave one out with "
            "more replays: stash spot learn --fleet-sizes 1,2,4,8), so nor is a probability; plan without it"
        )
    wishes = [
        FleetWish(apply_timed_model(pool, fleet), loss, deadline, confidence) for pool in pools
    ]
    # With the server that makes the cheapest fleet in time; with the fastest one if no fleet is.
    # Where weighing every fleet with every server would take long, only the fastest is looked at.
    fastest = max(wishes, key=lambda each: each.pool.server.bytes_per_second)
    if len(wishes) * fastest.fleet_count > _MAX_WEIGHED:
        return provision(fastest)
    plans = [provision(each) for each in wishes]
    return min(
        (each for each in plans if each.chosen is not None),
        key=lambda each: each.chosen.dollars if each.chosen is not None else math.inf,
        default=plans[wishes.index(fastest)],
    )


def apply_timed_model(pool: FleetPool, fleet: FleetModel | None) -> FleetPool:
    """The pool with how randomly workers of a timed ``fleet`` arrive, and a speed no surer than that model was.

    Where none was timed, and the pool does not say, a note tells that this is other people's.
    """
    if fleet is None:
        if pool.randomness is not None:
            return pool
        untimed = (
            "how randomly workers wait for a server is taken from published fleets; time yours, `stash spot fit` "
            "them and plan with --fleet"
        )
        return pool.model_copy(update={"notes": (*pool.notes, untimed)})
    sure = pool.uncertainty
    spread = fleet.spread
    if sure is not None and spread is not None:
        sure = sure.model_copy(update={"speed": max(sure.speed, min(spread, MAX_SPREAD))})
    return pool.model_copy(update={"randomness": fleet.queue.randomness, "uncertainty": sure})


# Plans with revocations


def plan_with_revocations(plan: FleetPlan, bands: Mapping[str, InterruptionBand]) -> FleetPlan:
    """``plan`` with the risk of the fleet that is best with revocations, which may be another than the cheapest.

    Revocations only delay, and all is paid until the end or the deadline: what a fleet costs in the mean without them
    bounds what it costs with them. So fleets are tried from the least bound on, and the cheapest on demand, which is
    never revoked, until the next bound is above the best one's cost. Where none is in time often enough it stays
    with the cheapest, whose ``risk.advice`` says so. Raises UserError where the rate of one of its types is missing.
    """
    if plan.chosen is None:
        return plan
    first = add_risk(plan, bands)
    tried, cut_short = _try_candidates(plan, bands)
    good = sorted((each for each in tried if keeps_limits(each)), key=_mean)
    best = next(filter(keeps_limits, (add_risk(each, bands) for each in good)), first)
    update: dict[str, object] = {}
    if _is_same_fleet(best, plan):
        best = first
    else:
        least = _mean(best)
        others = [
            each
            for each in good
            if not _is_same_fleet(each, best) and not _is_same_fleet(each, plan)
        ][: _RUNNERS_UP - 1]
        update = {
            "optimal": cut_short is None,
            "gap": 0.0 if cut_short is None else max(0.0, 1 - cut_short / least),
            "runners_up": tuple(_runner_up(each, least) for each in (*others, first)),
        }
    assert best.risk is not None
    update["risk"] = best.risk.model_copy(update={"weighed": len(tried)})
    return best.model_copy(update=update)


def _is_same_fleet(one: FleetPlan, other: FleetPlan) -> bool:
    return one.chosen == other.chosen and one.pool.types == other.pool.types


def _mean(found: FleetPlan) -> float:
    assert found.risk is not None
    return found.risk.dollars.value


def _try_candidates(
    plan: FleetPlan, bands: Mapping[str, InterruptionBand]
) -> tuple[list[FleetPlan], float | None]:
    """Fleets with their risk, and the least bound of those that there was no time for, if any."""
    tried: list[FleetPlan] = []
    least = math.inf
    began = time.process_time()
    for bound, candidate in _candidates(plan):
        if bound >= least:
            break
        if len(tried) >= _MAX or time.process_time() - began > _SECONDS:
            return tried, bound
        try:
            found = add_risk(candidate, bands, _RUNS)
        except UserError:
            continue  # of its types something is not known; of those in the plan's own fleet all is
        tried.append(found)
        if keeps_limits(found):
            least = min(least, _mean(found))
    return tried, None


def _candidates(plan: FleetPlan) -> Iterator[tuple[float, FleetPlan]]:
    """(least mean dollars, plan) of fleets that would do undisturbed: the least bound first.

    Before them the plan's own, and the cheapest fleet on demand: nothing that costs more is of use.
    """
    yield 0.0, plan
    for each in plan.baselines:
        if each.fleet is not None:
            fixed = rent_on_demand(plan.pool, each.fleet.workers)
            yield 0.0, plan.model_copy(update={"pool": fixed, "chosen": each.fleet})
    wish = FleetWish.read_plan(plan)
    weighed = all_fleets(wish)
    dollars = mean_dollars(plan, wish.hourly_dollars(weighed.counts), weighed.seconds)
    bounds = np.where(weighed.feasible, dollars, np.inf)
    for at in np.argsort(bounds, kind="stable")[: _MAX + 1].tolist():
        if not np.isfinite(bounds[at]):
            return
        candidate = plan.model_copy(update={"chosen": cost_fleet(wish, weighed, at)})
        if not _is_same_fleet(plan, candidate):
            yield float(bounds[at]), candidate


def _runner_up(found: FleetPlan, least: float) -> RunnerUp:
    assert found.chosen is not None
    assert found.risk is not None
    chance = chance_text(found, found.risk.p_deadline.value)
    why = f"the cheapest without revocations; with them {chance}"
    if keeps_limits(found):
        more = _mean(found) - least
        costs = f"costs ${more:.3f} more" if more >= _MILL else "costs about the same"
        why = f"{costs} in the mean with revocations, {chance}"
    return RunnerUp(fleet=found.chosen, why=why)
