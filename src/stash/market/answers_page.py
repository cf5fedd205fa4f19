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
    grid = Grid(
        "Offers now, the cheapest for a sample first", ("$/h", "samples/s", "$ a million samples"), rows,
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
    return {
        "schema": SCHEMA,
        "answer": advice.word,
        "policy": advice.policy,
        "at": stamp(advice.now),
        "to": advice.to,
        "saves_dollars": advice.saves,
        "move_costs_dollars": advice.costs,
        "why": advice.sentence,
        "would_change": list(advice.changes),
        "task": advice.task,
        "command": None if advice.command is None else list(advice.command),
        "warnings": list(advice.warnings),
    }
