"""Advice as a page and as JSON."""

from __future__ import annotations

from typing import Any

from stash.market.advising import MarketAdvice
from stash.market.market_trace import stamp
from stash.ui.charts.chart import Grid
from stash.ui.page import Chapter, Page

SCHEMA = 1


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
