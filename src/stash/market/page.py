"""Markets, backtests and advice as pages and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from stash.core.formatting import format_dollars, format_span, join_names
from stash.core.units import format_count
from stash.market.advising import MarketAdvice
from stash.market.backtest import Backtest
from stash.market.job_market import not_counted
from stash.market.jobs import BOOT, EVERY, FETCH
from stash.market.leases import PARTS
from stash.market.market_trace import MarketTrace, iso_day, iso_time
from stash.ui.charts.chart import Grid
from stash.ui.page import Page

SCHEMA = 1
_MAX_OFFERS = 60
_MAX_ADVISED = 10
_ASSUMED = {
    "boot": f"{BOOT:g} s",
    "fetch": f"{FETCH / 1e6:g} MB/s",
    "checkpoint_every": f"{EVERY:g} s",
}


# A market


def market_page(trace: MarketTrace, source: str) -> Page:
    """Offers, coverage, prices, availability."""
    facts = [_offer_facts(trace, number) for number in range(min(len(trace.offers), _MAX_OFFERS))]
    rows = tuple(
        (
            offer.name,
            format_span(each["covered_seconds"]),
            *(
                "unknown" if each[name] is None else f"{each[name]:.4g}"
                for name in ("lowest", "mean", "highest")
            ),
            "not watched"
            if each["available"] is None
            else f"{each['available']:.0%} of {each['availability_watched']:.0%}",
        )
        for offer, each in zip(trace.offers, facts, strict=False)
    )
    head = ("covered", "lowest $/h", "mean", "highest", "available")
    more = len(trace.offers) - len(rows)
    below = f"{more} more; --json has all" if more else ""
    grid = Grid(
        "Offers", head, rows, frozenset({0}), first="offer", ranks=(0, 1, 3, 2, 4, 5), below=below
    )
    clouds = join_names(sorted({each.cloud for each in trace.offers}))
    whole = f"{format_count(len(trace.offers), 'offer')} of {clouds} from {iso_day(trace.begin)} to {iso_day(trace.end)}."
    return Page(
        title="A market", source=source, subtitle=trace.sources[:3], verdict=(whole,), grids=(grid,)
    )


def _offer_facts(trace: MarketTrace, number: int) -> dict[str, Any]:
    only = trace.select_offers([number])
    price = only.price
    available = only.available
    lasts = np.minimum(only.ends, trace.end) - only.at
    known = ~np.isnan(price)
    seen = ~np.isnan(available)
    whole = float(lasts[only.is_watched].sum())
    covered = float(lasts[known].sum())
    looked = float(lasts[seen].sum())
    return {
        **only.offers[0]._asdict(),
        "covered_seconds": covered,
        "lowest": float(price[known].min()) if covered else None,
        "mean": float(price[known] @ lasts[known]) / covered if covered else None,
        "highest": float(price[known].max()) if covered else None,
        "availability_watched": looked / whole if whole else 0.0,
        "available": float(lasts[seen] @ (available[seen] >= 1)) / looked if looked else None,
    }


def market_document(trace: MarketTrace, source: str) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "schema": SCHEMA,
        "market": source,
        "begin": iso_time(trace.begin),
        "end": iso_time(trace.end),
        "max_gap_seconds": trace.max_gap,
        "sources": list(trace.sources),
        "offers": [_offer_facts(trace, number) for number in range(len(trace.offers))],
    }


# A backtest


def backtest_page(found: Backtest, source: str) -> Page:
    """A line for each policy."""
    means = {name: found.mean(name) for name in found.runs}
    base = means[found.reference]
    against = {
        name: f"{mean / base - 1:+.1%}" if base else "unknown" for name, mean in means.items()
    }
    late = {name: sum(run.late for run in runs) for name, runs in found.runs.items()}
    in_time = [name for name in means if not late[name]]
    best = min(in_time or means, key=means.__getitem__)
    among = " of those that are never late" if 0 < len(in_time) < len(means) else ""
    sentence = f"{best} costs least{among} in the mean, {format_dollars(means[best])}"
    if best != found.reference:
        sentence += f" ({against[best]} against {found.reference}, {format_dollars(base)})"
    lines = []
    for name, runs in found.runs.items():
        low, high = np.percentile([run.dollars for run in runs], [5, 95])
        decimals = 2 if high < 100 else 0
        dollars = f"{format_dollars(means[name])} ({low:,.{decimals}f}-{high:,.{decimals}f})"
        often = "-" if found.deadline is None else f"{late[name]} of {len(runs)}"
        moves = np.mean([run.count("moved") for run in runs])
        lines.append((name, dollars, against[name], often, f"{moves:.1f}"))
    parts = {name: found.mean_parts(name) for name in means}
    shown = [part for part in PARTS if any(each.get(part) for each in parts.values())]
    bills = tuple(
        (name, *(f"{each.get(part, 0.0):.2f}" for part in shown), f"{means[name]:.2f}")
        for name, each in parts.items()
    )
    starts = format_count(len(found.starts), "start")
    until = "" if found.deadline is None else f", each to be done in {format_span(found.deadline)}"
    columns = ("dollars (5-95 %)", f"against {found.reference.partition(':')[0]}", "late", "moves")
    text = frozenset({0})
    return Page(
        title=f"{found.market.job.name} on {source}",
        source=f"{starts}, {iso_day(found.starts[0])} to {iso_day(found.starts[-1])}{until}",
        subtitle=tuple(
            f"{format_count(count, 'start')} left out: {why}"
            for why, count in sorted(found.left_out.items())
        ),
        verdict=(f"{sentence}.",),
        grids=(
            Grid("", columns, tuple(lines), text, first="policy", ranks=(0, 0, 1, 2, 3)),
            Grid("Mean dollars", (*shown, "bill"), bills, text, first="policy"),
        ),
        warnings=tuple(_warnings(found)),
    )


def _warnings(found: Backtest) -> Iterator[str]:
    market, trace = found.market, found.market.trace
    if market.excluded:
        names = sorted(market.excluded)
        yield f"Without a rate, and so left out: {join_names(names, 8)} ({market.excluded[names[0]]})"
    lasts = np.where(trace.is_watched, trace.ends - trace.at, 0.0)
    watched = float(lasts[~np.isnan(trace.available)].sum() / lasts.sum())
    if watched < 0.999:
        yield f"Whether machines could be had was watched for {watched:.1%} of the time; else they are taken as there"
    assumed = [name for name in _ASSUMED if name not in market.job.model_fields_set]
    if assumed:
        yield f"Assumed: {', '.join(f'{name} of {_ASSUMED[name]}' for name in assumed)}; a job.yaml can state them"
    uncharged = not_counted(market.fees, {each.cloud for each in market.offers})
    if uncharged:
        yield f"Not counted, since no source says it: {join_names(uncharged)}"
    if len(found.starts) < 10:
        yield f"{format_count(len(found.starts), 'start')}: one stretch of time, and how another one goes is unknown"


def backtest_document(found: Backtest, source: str) -> dict[str, Any]:
    """The same as JSON: per policy and start dollars, finish_seconds, leases, moves, parts."""
    market = found.market
    return {
        "schema": SCHEMA,
        "market": source,
        "job": market.job.model_dump(),
        "deadline_seconds": found.deadline,
        "left_out": dict(found.left_out),
        "excluded": dict(market.excluded),
        "policies": {
            name: [
                {
                    "start": iso_time(run.start),
                    "dollars": run.dollars,
                    "finish_seconds": run.seconds,
                    "late": run.late,
                    "moves": run.count("moved"),
                    "revocations": run.count("revoked"),
                    "parts": dict(run.parts),
                    "leases": [
                        {
                            "offer": market.offers[lease.offer].name,
                            "cloud": market.offers[lease.offer].cloud,
                            "granted": iso_time(lease.granted),
                            "seconds": lease.ended - lease.granted,
                            "dollars": lease.dollars,
                            "end": lease.end,
                        }
                        for lease in run.leases
                    ],
                }
                for run in runs
            ]
            for name, runs in found.runs.items()
        },
    }


# Advice


def advice_page(advice: MarketAdvice) -> Page:
    """Stay or move, why, what it saves, what starts it."""
    state = advice.state
    market = state.market
    prices = state.prices
    costs = state.costs
    rows = tuple(
        (
            market.offers[each].name + (" (held)" if each == state.held else ""),
            f"{prices[each]:.4g}",
            f"{market.rates[each]:,.1f}",
            f"{costs[each] * 1e6:.4g}",
        )
        for each in np.argsort(costs, kind="stable")[:_MAX_ADVISED]
        if state.there[each]
    )
    head = ("$/h", "samples/s", "$ a million samples")
    grid = Grid(
        "Offers now, the cheapest for a sample first", head, rows, frozenset({0}), first="offer"
    )
    return Page(
        title=f"{market.job.name}: {advice.word}",
        source=f"Prices of {iso_time(state.now)}",
        verdict=(advice.sentence,),
        grids=(grid,),
        warnings=advice.warnings,
        next_steps=advice.next_steps,
    )


def advice_document(advice: MarketAdvice) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "schema": SCHEMA,
        "answer": advice.word,
        "at": iso_time(advice.state.now),
        "to": None if advice.to is None else advice.state.market.offers[advice.to].name,
        "saves_dollars": advice.saves,
        "move_costs_dollars": advice.costs,
        "why": advice.sentence,
        "task": advice.task,
        "command": list(advice.command) or None,
        "warnings": list(advice.warnings),
    }
