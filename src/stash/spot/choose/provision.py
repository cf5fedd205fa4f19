"""Which fleet to rent: the cheapest that reaches the loss in time, why others lost, and what would do if none does.

Exact: all fleets of a small pool are weighed, of a large one ``branching`` proves the best by the paper's model.
Knows no revocations: a plan is for machines that stay.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from stash.core.errors import UserError
from stash.core.units import counted
from stash.predict.draws import Array
from stash.spot.choose.branching import SECONDS, CheapestFleet, cheapest, likely
from stash.spot.choose.fleet_costs import (
    HOUR,
    MAX_FLEETS,
    FleetWish,
    WeighedFleets,
    all_fleets,
    checked,
    costed,
    judged,
    neighbours,
    on_demand,
    too_much,
    weigh,
)
from stash.spot.model.convergence import loss_after
from stash.spot.records.fleets import Baseline, CostedFleet, FleetPlan, LooserWish, RunnerUp

_RUNNERS_UP = 3
_MORE_QUOTA = 8
"""Machines of one type by which a quota is raised at most to find what would do."""
_SAME = 1e-6
"""Relative: what two ways of adding up may differ by."""
_EXTRA_SECONDS = 1.0
"""Of a processor, for each comparison with the best fleet of a large pool: the best found by then, unproven."""


def provision(wish: FleetWish, version: str, created: str) -> FleetPlan:
    """The plan for ``wish``; raises UserError where its numbers contradict each other, or are too many."""
    checked(wish)
    if not sum(wish.quotas):
        raise UserError("every quota is 0; allow one machine at least, like --quota TYPE=1")
    began = time.perf_counter()
    answer, known = _best_fleet(wish)
    chosen = None if answer.counts is None else costed(wish, answer.counts)
    found = FleetPlan(
        stash_version=version,
        created=created,
        model=wish.model,
        deadline_seconds=wish.deadline_seconds,
        loss=wish.loss,
        confidence=wish.confidence,
        budget_dollars=wish.budget_dollars,
        pool=wish.pool,
        chosen=chosen,
        optimal=chosen is not None and answer.gap == 0,
        gap=None if chosen is None else min(answer.gap, 1.0),
        evaluations=answer.evaluations,
        search_seconds=0.0,
        runners_up=() if answer.counts is None else tuple(_runners_up(wish, answer.counts, known)),
        baselines=(_on_demand(wish),),
        looser=_looser(wish, known) if chosen is None else (),
        beyond=() if chosen is None else tuple(_beyond(wish, chosen)),
    )
    return found.model_copy(update={"search_seconds": time.perf_counter() - began})


def _best_fleet(wish: FleetWish, seconds: float = SECONDS) -> tuple[CheapestFleet, WeighedFleets | None]:
    """The best fleet, and all fleets where they were weighed."""
    number = wish.fleet_count
    if number <= MAX_FLEETS:
        known = all_fleets(wish)
        dollars = np.where(known.feasible, known.dollars, math.inf)
        at = int(np.argmin(dollars))
        counts = known.counts[at] if math.isfinite(dollars[at]) else None
        return CheapestFleet(counts, float(dollars[at]), 0.0, number, 0), known
    if wish.model == "queue":
        raise UserError(
            f"the quotas allow {number:,} fleets, and the queueing model is searched exactly among {MAX_FLEETS:,} "
            "at most; lower quotas with --quota TYPE=N, or use --model paper"
        )
    return cheapest(wish, seconds), None


def _on_demand(wish: FleetWish) -> Baseline:
    text = "the cheapest fleet of on-demand machines"
    kinds = [on_demand(kind) or kind.model_copy(update={"quota": 0}) for kind in wish.pool.types]
    if not any(kind.quota for kind in kinds):
        why = "no on-demand price is known; add on_demand_dollars_per_hour to the pool's types"
        return Baseline(name="on-demand", text=text, fleet=None, why=why)
    dearer = replace(wish, pool=wish.pool.model_copy(update={"types": tuple(kinds)}))
    return judged("on-demand", text, dearer, _best_fleet(dearer, _EXTRA_SECONDS)[0].counts)


def _runners_up(wish: FleetWish, best: Array, known: WeighedFleets | None) -> Iterator[RunnerUp]:
    """The next best fleets, and the fastest of those that would be cheaper and do not do.

    Among all where they are known, else among those one machine away.
    """
    found = weigh(wish, neighbours(wish, best)) if known is None else known
    counts = found.counts
    least = costed(wish, best).dollars
    other = (counts != best).any(axis=1) & np.isfinite(found.dollars)
    dearer = np.where(other & found.feasible, found.dollars, math.inf)
    for at in np.argsort(dearer, kind="stable")[:_RUNNERS_UP]:
        if math.isfinite(dearer[at]):
            fleet = costed(wish, counts[at])
            more = fleet.dollars - least
            share = f" ({more / least:.1%})" if least else ""
            yield RunnerUp(fleet=fleet, why=f"costs ${more:.3f} more{share}")
    cheaper = np.where(other & ~found.feasible & (found.dollars < least), found.seconds, math.inf)
    at = int(np.argmin(cheaper))
    if math.isfinite(cheaper[at]):
        fleet = costed(wish, counts[at])
        yield RunnerUp(fleet=fleet, why=too_much(wish, fleet))


def _looser(wish: FleetWish, known: WeighedFleets | None) -> tuple[LooserWish, ...]:
    """What would do; without the budget too, if with it nothing does."""
    found = tuple(_nearest(wish, known))
    if found or wish.budget_dollars is None:
        return found
    free = _nearest(replace(wish, budget_dollars=None), known)
    return tuple(each.model_copy(update={"text": f"{each.text}; without --max-dollars"}) for each in free)


def _nearest(wish: FleetWish, known: WeighedFleets | None) -> Iterator[LooserWish]:
    """The nearest budget, deadline, loss and quota with which something is feasible; those that were found."""
    if wish.budget_dollars is not None:
        free = replace(wish, budget_dollars=None)
        cheapest_in_time = _best_fleet(free, _EXTRA_SECONDS)[0].counts
        if cheapest_in_time is not None:
            dollars = math.ceil(costed(free, cheapest_in_time).dollars * 100) / 100
            yield LooserWish(
                option="budget", to=f"--max-dollars {dollars:.2f}", text="what the cheapest fleet in time costs"
            )
    start = wish.pool.start_seconds
    soonest = _soonest(wish, known)
    if soonest is not None:
        needed = math.ceil(start + (soonest.seconds - start) * wish.reserve)
        if needed > wish.deadline_seconds:
            took = f"{soonest.seconds:,.0f} s" + (f", {start:,.0f} of them to start" if start else "")
            text = f"the fastest fleet that was found takes {took}, for ${soonest.dollars:.2f}"
            yield LooserWish(option="deadline", to=f"--deadline {needed}s", text=text)
    loss = _least_loss(wish, known)
    if wish.loss < loss < math.inf:
        text = f"what the {'best fleet' if known else 'best fleet that was found'} reaches by the deadline"
        if wish.loss <= wish.pool.loss.gamma5:
            text += f"; by this curve {wish.pool.loss.gamma5:g} is left after any number of updates (gamma5)"
        yield LooserWish(option="loss", to=f"--loss {loss:g}", text=text)
    if known is not None:
        yield from _more_machines(wish)


def _soonest(wish: FleetWish, known: WeighedFleets | None) -> CostedFleet | None:
    """The fastest fleet that budget and quotas allow: the cheapest one where only time costs."""
    if known is None:
        free = tuple(kind.model_copy(update={"dollars_per_hour": 0.0}) for kind in wish.pool.types)
        server = wish.pool.server.model_copy(update={"dollars_per_hour": 1.0})
        timed = wish.pool.model_copy(update={"types": free, "server": server})
        counts = cheapest(
            replace(wish, pool=timed, deadline_seconds=1e9, budget_dollars=None, confidence=None), _EXTRA_SECONDS
        ).counts
        return None if counts is None else costed(wish, counts)
    allowed = np.isfinite(known.seconds) & wish.within_vcpus(known.counts)
    if wish.budget_dollars is not None:
        allowed &= known.dollars <= wish.budget_dollars
    if not allowed.any():
        return None
    return costed(wish, known.counts[int(np.argmin(np.where(allowed, known.seconds, math.inf)))])


def _least_loss(wish: FleetWish, known: WeighedFleets | None) -> float:
    """The least loss in time, rounded up to three digits, of all fleets or of likely ones; infinite if unknown."""
    if wish.training_seconds <= 0:
        return math.inf
    found = weigh(wish, likely(wish)) if known is None else known
    counts, progress = found.counts, found.progress
    updates = progress.updates_per_second * wish.training_seconds
    losses = loss_after(wish.pool.loss, updates, progress.mean_batch, progress.imbalance, counts.sum(axis=1))
    meaningful = losses > (wish.pool.loss.levels[-1].loss if wish.pool.loss.levels else wish.pool.loss.gamma5)
    meaningful &= wish.within_vcpus(counts)
    if wish.budget_dollars is not None:
        hours = (wish.pool.start_seconds + wish.training_seconds) / HOUR
        meaningful &= hours * (counts @ wish.prices + wish.server_price) <= wish.budget_dollars
    return math.ceil(float(losses[meaningful].min()) * 1000) / 1000 if meaningful.any() else math.inf


def _more_machines(wish: FleetWish) -> Iterator[LooserWish]:
    """The type of which the fewest more machines would do."""
    for more in range(1, _MORE_QUOTA + 1):
        for number, kind in enumerate(wish.pool.types):
            kinds = list(wish.pool.types)
            kinds[number] = kind.model_copy(update={"quota": kind.quota + more})
            larger = replace(wish, pool=wish.pool.model_copy(update={"types": tuple(kinds)}))
            if larger.fleet_count > MAX_FLEETS:
                return
            if _best_fleet(larger)[0].counts is not None:
                to = f"--quota {kind.name}={kind.quota + more}"
                yield LooserWish(
                    option="quota", to=to, text=f"{counted(more, 'machine')} more of {kind.name} would do"
                )
                return


def _beyond(wish: FleetWish, chosen: CostedFleet) -> Iterator[str]:
    """What the plan takes for granted, and where the curve is asked about what no replay showed."""
    if chosen.updates <= 1:
        yield "the loss is reached before training begins, by this curve: nothing was learned about that"
    if wish.model == "queue" and wish.pool.server.apply_seconds == 0:
        yield "applying updates takes no time in this pool (apply_seconds): a server that computes slowly is not seen"
    if wish.pool.server.count > 1:
        yield (
            f"the {wish.pool.server.count} servers are taken to have equal shares of the parameters: where one has "
            "more, as it holds a large tensor, workers wait for it"
        )
    seen = wish.pool.learned
    if seen is None:
        return
    size, batch = sum(chosen.workers.values()), chosen.mean_batch
    if size > seen.most_workers:
        yield f"{size} workers are more than the {seen.most_workers} of the largest fleet that was replayed"
    if not seen.least_batch * (1 - _SAME) <= batch <= seen.most_batch * (1 + _SAME):
        yield (
            f"a mean batch of {batch:.4g} lies outside of those that were replayed, {seen.least_batch:.4g} to "
            f"{seen.most_batch:.4g}"
        )
    if chosen.imbalance > seen.most_imbalance * (1 + _SAME):
        yield f"an R of {chosen.imbalance:.2f} is more than the {seen.most_imbalance:.2f} that was replayed"
    if wish.loss < seen.least_loss:
        yield f"a loss of {wish.loss:.4g} is below {seen.least_loss:.4g}, the least that all replays reached"
    if chosen.updates > seen.most_updates:
        yield f"{chosen.updates:,.0f} updates are more than the {seen.most_updates:,} that were replayed"
