"""From a profile, a learned curve and offers to the cheapest fleet in time: ``stash.spot.plan``.

Pure: asks no cloud and reads no file. Knows what follows what; each step is another module's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, timezone

import numpy as np

from stash.base.errors import UserError
from stash.base.records import Profile
from stash.base.records.base import now
from stash.base.spot.curve import LearnedCurve
from stash.base.spot.fleets import FleetModel, FleetPlan, FleetPool
from stash.base.version import __version__
from stash.derive.predict.whatif.forecasting import base_of, shipped_catalog
from stash.derive.spot.fleet.enumeration import everything, fleets
from stash.derive.spot.fleet.provision import provision
from stash.derive.spot.fleet.purchasing import rented_on_demand
from stash.derive.spot.fleet.weighing import FleetWish, checked
from stash.derive.spot.pool.from_profile import MOST_SPREAD, pools_of
from stash.derive.spot.pool.market import market_of
from stash.derive.spot.pool.server_memory import server_bytes
from stash.keep.catalog import Catalog, Offer

_MOST_WEIGHED = 200_000
"""Fleets with servers: a few seconds."""
_UNTIMED = (
    "how randomly workers wait for a server is taken from published fleets; time yours, `stash spot fit` them and "
    "plan with --fleet"
)


def plan(
    profile: Profile,
    curve: LearnedCurve,
    offers: Iterable[Offer],
    *,
    deadline: float,
    loss: float,
    quotas: Mapping[str, int],
    server: str | None = None,
    servers: int = 1,
    start: float = 0.0,
    confidence: float | None = None,
    budget: float | None = None,
    vcpus: float | None = None,
    fleet: FleetModel | None = None,
    on_demand: Collection[str] = (),
    source: str = "the profile",
    today: date | None = None,
    catalog: Callable[[], Catalog] = shipped_catalog,
) -> FleetPlan:
    """The cheapest fleet of spot workers and on-demand servers that reaches ``loss`` within ``deadline`` seconds.

    ``offers`` are what may be rented, spot and on demand, of GPUs and without, as ``stash.keep.catalog.query`` has
    them; ``quotas`` how many of which types. ``start`` is seconds from the request to the first update, ``budget``
    dollars, ``confidence`` the probability of being in time, from the forecasts' and the curve's own errors.
    ``fleet`` is what ``stash spot fit`` learned of fleets that were timed; types ``on_demand`` are not rented as
    spot machines; ``catalog`` has the facts of the types. Raises UserError for what is needed and not known.
    """
    base = base_of(profile, catalog=catalog)
    market = market_of(offers, quotas, server, servers, start, server_bytes(curve, servers))
    pools = pools_of(base, source, curve, market, loss, today or datetime.now(timezone.utc).date())
    pools = tuple(as_timed(rented_on_demand(pool, on_demand), fleet) for pool in pools)
    wishes = [_wish(pool, deadline, loss, confidence, budget, vcpus) for pool in pools]
    return provision(_best_served(wishes), __version__, now())


def as_timed(pool: FleetPool, fleet: FleetModel | None) -> FleetPool:
    """The pool with how randomly workers of a timed ``fleet`` arrive, and a speed no surer than that model was.

    Where nobody timed any, and the pool does not say, a note tells that this is other people's.
    """
    if fleet is None:
        return pool if pool.randomness is not None else pool.model_copy(update={"notes": (*pool.notes, _UNTIMED)})
    sure, spread = pool.uncertainty, fleet.spread["queue"]
    if sure is not None and spread is not None:
        sure = sure.model_copy(update={"speed": max(sure.speed, min(spread, MOST_SPREAD))})
    return pool.model_copy(update={"randomness": fleet.queue.randomness, "uncertainty": sure})


def _best_served(wishes: Sequence[FleetWish]) -> FleetWish:
    """With the server that makes the cheapest fleet in time; with the fastest one if no fleet is.

    Where weighing every fleet with every server would take long, only the fastest is looked at.
    """
    fastest = max(wishes, key=lambda each: each.pool.server.bytes_per_second)
    if len(wishes) * fleets(fastest) > _MOST_WEIGHED:
        return fastest
    costs = [_least(checked(each)) for each in wishes]
    return wishes[int(np.argmin(costs))] if min(costs) < np.inf else fastest


def _least(wish: FleetWish) -> float:
    """Dollars of the cheapest fleet in time; infinite if none is."""
    weighed = everything(wish).weighed
    return float(np.min(weighed.dollars, where=weighed.feasible, initial=np.inf))


def _wish(
    pool: FleetPool, deadline: float, loss: float, confidence: float | None, budget: float | None, vcpus: float | None
) -> FleetWish:
    """Raises UserError for a probability that nobody can tell."""
    if confidence is not None and pool.uncertainty is None:
        raise UserError(
            f"--confidence {confidence:g}: how wrong the forecast or the curve is, is not known (leave one out with "
            "more replays: stash spot learn --workers 1,2,4,8), so nor is a probability; plan without it"
        )
    if vcpus is not None:
        pool = pool.model_copy(update={"most_vcpus": vcpus})
    return FleetWish(pool, "queue", loss, deadline, confidence, budget)
