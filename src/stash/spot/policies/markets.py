"""Traces and prices as the market of one gang: what could be had and what it cost, tick by tick, trace after trace.

Knows no policies. A price holds until the next one. Types that a plan rents on demand can always be had, but the gang
holds them only with the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stash.core.errors import UserError
from stash.predict.draws import Array
from stash.spot.choose.fleet_costs import on_spot
from stash.spot.policies.policies import Integers, SpotMarket, SyncJob, ticks
from stash.spot.records.fleets import FleetPlan
from stash.spot.records.risks import Obtainable, SpotPrices

HOUR = 3600.0


@dataclass(frozen=True, eq=False)
class RecordedMarket:
    """All traces, one after the other."""

    market: SpotMarket
    starts: Integers
    """Ticks that have a whole run of their trace after them."""
    independent: float
    """Runs that the traces hold beside each other."""


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


def recorded(
    plan: FleetPlan, job: SyncJob, traces: Sequence[Obtainable], prices: Mapping[str, SpotPrices]
) -> RecordedMarket:
    """The market of the plan's gang; without ``prices`` they are the plan's.

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
    market = SpotMarket(gap, np.concatenate(there), np.concatenate(dollars))
    return RecordedMarket(market, np.concatenate(starts), independent)


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
