"""Which fleet to rent: the cheapest that reaches the loss in time, why others lost, and what would do if none does.

Exact: all fleets are weighed. Knows no revocations: a plan is for machines that stay.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from stash.core.errors import UserError
from stash.core.records.base import utc_now
from stash.core.version import __version__
from stash.spot.fleet_costs import (
    FleetWish,
    WeighedFleets,
    all_fleets,
    cost_fleet,
    make_on_demand,
)
from stash.spot.fleet_records import Baseline, CostedFleet, FleetPlan, LooserWish, RunnerUp

_RUNNERS_UP = 3
_SAME = 1e-6
"""Relative: what two ways of adding up may differ by."""


def provision(wish: FleetWish) -> FleetPlan:
    """The plan for ``wish``; raises UserError where its numbers contradict each other, or are too many."""
    if wish.confidence is not None and wish.deviation is None:
        raise UserError(
            f"--confidence {wish.confidence:g}: the pool does not say how wrong its numbers are; add to it "
            "uncertainty: {speed: 0.05, updates: 0.1}"
        )
    if not wish.fleet_count:
        raise UserError("every quota is 0; allow one machine at least, like --quota TYPE=1")
    began = time.perf_counter()
    known = all_fleets(wish)
    best = known.cheapest
    chosen = None if best is None else cost_fleet(wish, known, best)
    found = FleetPlan(
        stash_version=__version__,
        created=utc_now(),
        deadline_seconds=wish.deadline_seconds,
        loss=wish.loss,
        confidence=wish.confidence,
        pool=wish.pool,
        chosen=chosen,
        optimal=chosen is not None,
        gap=None if chosen is None else 0.0,
        evaluations=len(known.counts),
        search_seconds=0.0,
        runners_up=() if chosen is None else tuple(_runners_up(wish, chosen, known)),
        baselines=(_demand_baseline(wish),),
        looser=tuple(_looser_wishes(wish, known)) if chosen is None else (),
        beyond=tuple(_assumptions(wish, chosen)),
    )
    return found.model_copy(update={"search_seconds": time.perf_counter() - began})


def _demand_baseline(wish: FleetWish) -> Baseline:
    """The cheapest fleet of machines on demand, of types whose price there is known."""
    kinds = tuple(filter(None, map(make_on_demand, wish.pool.types)))
    fleet = None
    why = ""
    if not any(kind.quota for kind in kinds):
        why = "no on-demand price is known; add on_demand_dollars_per_hour to the pool's types"
    else:
        dearer = replace(wish, pool=wish.pool.model_copy(update={"types": kinds}))
        known = all_fleets(dearer)
        if known.cheapest is None:
            why = "finds nothing in time"
        else:
            fleet = cost_fleet(dearer, known, known.cheapest)
    return Baseline(
        name="on-demand",
        text="the cheapest fleet of on-demand machines",
        fleet=fleet,
        why=why,
        feasible=None if fleet is None else True,
    )


def _runners_up(wish: FleetWish, chosen: CostedFleet, fleets: WeighedFleets) -> Iterator[RunnerUp]:
    """The next best fleets."""
    dollars = np.where(fleets.feasible, fleets.dollars, math.inf)
    for at in np.argsort(dollars, kind="stable")[1 : 1 + _RUNNERS_UP].tolist():
        if math.isfinite(dollars[at]):
            fleet = cost_fleet(wish, fleets, at)
            more = fleet.dollars - chosen.dollars
            share = f" ({more / chosen.dollars:.1%})" if chosen.dollars else ""
            yield RunnerUp(fleet=fleet, why=f"costs ${more:.3f} more{share}")


def _looser_wishes(wish: FleetWish, known: WeighedFleets) -> Iterator[LooserWish]:
    """The nearest deadline with which something is feasible, if there is one."""
    at = int(np.argmin(known.seconds))
    start = wish.pool.start_seconds
    seconds = known.seconds[at]
    dollars = known.dollars[at]
    if math.isfinite(seconds):
        needed = math.ceil(start + (seconds - start) * wish.reserve)
        took = f"{seconds:,.0f} s" + (f", {start:,.0f} of them to start" if start else "")
        text = f"the fastest fleet takes {took}, for ${dollars:.2f}"
        yield LooserWish(option="deadline", to=f"--deadline {needed}s", text=text)


def _assumptions(wish: FleetWish, chosen: CostedFleet | None) -> Iterator[str]:
    """What the plan takes for granted, and where the curve is asked about what no replay showed."""
    if chosen is None:
        left = wish.pool.loss.gamma5
        if wish.loss <= left:
            yield f"by this curve {left:g} is left after any number of updates (gamma5): ask for a higher --loss"
        return
    if wish.pool.server.apply_seconds == 0:
        yield "applying updates takes no time in this pool (apply_seconds): a server that computes slowly is not seen"
    if wish.pool.server.count > 1:
        yield (
            f"the {wish.pool.server.count} servers are taken to have equal shares of the parameters: where one has "
            "more, as it holds a large tensor, workers wait for it"
        )
    seen = wish.pool.learned
    if seen is None:
        return
    size = sum(chosen.workers.values())
    batch = chosen.mean_batch
    if size > seen.most_workers:
        yield f"{size} workers are more than the {seen.most_workers} of the largest fleet that was replayed"
    if not seen.least_batch * (1 - _SAME) <= batch <= seen.most_batch * (1 + _SAME):
        yield (
            f"a mean batch of {batch:.4g} lies outside of those that were replayed, {seen.least_batch:.4g} to "
            f"{seen.most_batch:.4g}"
        )
    if wish.loss < seen.least_loss:
        yield f"a loss of {wish.loss:.4g} is below {seen.least_loss:.4g}, the least that all replays reached"
