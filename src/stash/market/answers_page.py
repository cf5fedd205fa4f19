"""Advice, and who trains where, as pages and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stash.core.formatting import dollars, span
from stash.core.units import counted
from stash.market.advising import MarketAdvice
from stash.market.job_collections import Assignment, RentedType, WaitingJob
from stash.market.market_trace import stamp
from stash.ui.charts.chart import Grid
from stash.ui.page import Chapter, Page

SCHEMA = 1


# Many jobs


def assignment_page(found: Assignment, jobs: Sequence[WaitingJob], types: Sequence[RentedType]) -> Page:
    """A line for each job: where it trains, its share of the linear program, its time and cost."""
    rows = []
    for number, (job, offer) in enumerate(zip(jobs, found.chosen, strict=True)):
        seconds = job.samples / job.rates[types[offer].instance]
        cost = seconds * job.machines * types[offer].dollars_per_hour / 3600
        shares = [
            f"{each.instance} {share:.0%}"
            for each, share in zip(types, found.shares[number], strict=True)
            if share > 0.005
        ]
        limit = "" if job.deadline is None else span(job.deadline)
        rows.append((job.name, types[offer].instance, span(seconds), limit, dollars(cost), ", ".join(shares)))
    sentence = (
        f"All of it costs {dollars(found.dollars)} and is done in {span(found.seconds)}; by {found.goal} that is "
        f"{_valued(found, found.value)}, {found.gap:.1%} from what shared machines could do "
        f"({_valued(found, found.bound)})."
    )
    head = ("trains on", "time", "deadline", "cost", "shares of the linear program")
    return Page(
        title=f"{counted(len(jobs), 'job')}, {found.goal}",
        subtitle=tuple(f"{each.instance} at ${each.dollars_per_hour:.4g}/h ({each.where})" for each in types),
        verdict=(sentence,),
        grids=(Grid("", head, tuple(rows), frozenset({0, 1, 5}), first="job"),),
    )


def _valued(found: Assignment, value: float) -> str:
    if found.goal == "work-per-dollar":
        return f"{value:.4g} jobs a dollar"
    return dollars(value) if found.goal == "cost" else span(value)


def assignment_document(found: Assignment, jobs: Sequence[WaitingJob], types: Sequence[RentedType]) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "schema": SCHEMA,
        "goal": found.goal,
        "bound": found.bound,
        "value": found.value,
        "gap": found.gap,
        "dollars": found.dollars,
        "seconds": found.seconds,
        "jobs": {
            job.name: {
                "instance": types[offer].instance,
                "shares": {
                    each.instance: float(share) for each, share in zip(types, found.shares[number], strict=True)
                },
            }
            for number, (job, offer) in enumerate(zip(jobs, found.chosen, strict=True))
        },
    }


# MarketAdvice


def advice_page(advice: MarketAdvice) -> Page:
    """Stay or move, why, what it saves, what would change its mind."""
    rows = tuple(
        (f"{name} (held)" if held else name, f"{price:.4g}", f"{rate:,.1f}", f"{cost * 1e6:.4g}")
        for name, price, rate, cost, held in advice.offers
    )
    first = "fastest" if advice.objective == "time" else "cheapest for a sample"
    grid = Grid(
        f"Offers now, the {first} first", ("$/h", "samples/s", "$ a million samples"), rows,
        frozenset({0}), first="offer",
    )  # fmt: skip
    return Page(
        title=f"{advice.job}: {advice.word}",
        source=f"{advice.policy} on prices of {stamp(advice.now)}",
        verdict=(advice.sentence,),
        grids=(grid,),
        warnings=advice.warnings,
        next_steps=advice.next_steps,
        chapters=(Chapter("mind", "What would change this", points=advice.changes, brief=True),),
    )


def advice_document(advice: MarketAdvice) -> dict[str, Any]:
    """The same as JSON."""
    unit = "seconds" if advice.objective == "time" else "dollars"
    return {
        "schema": SCHEMA,
        "answer": advice.word,
        "policy": advice.policy,
        "at": stamp(advice.now),
        "to": advice.to,
        f"saves_{unit}": advice.saves,
        f"move_costs_{unit}": advice.costs,
        "why": advice.sentence,
        "would_change": list(advice.changes),
        "task": advice.task,
        "command": None if advice.command is None else list(advice.command),
        "warnings": list(advice.warnings),
    }
