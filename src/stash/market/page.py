"""Markets and backtests as pages and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from stash.core.formatting import dollars, listed, span
from stash.core.ladder import STALLS
from stash.core.units import counted
from stash.market.backtest import Backtest, PolicySummary, summaries
from stash.market.fees import not_counted
from stash.market.leases import PARTS
from stash.market.market_trace import MarketTrace, day, stamp
from stash.predict.draws import Array
from stash.ui.charts.builders import BarPiece, LaneRow, lane_chart, lanes_ruler
from stash.ui.charts.chart import Chart, Grid
from stash.ui.page import Chapter, Page

SCHEMA = 1
_MAX_OFFERS = 60


# A market


def market_page(trace: MarketTrace, source: str) -> Page:
    """Offers, coverage, holes, prices, availability."""
    rows = tuple(_offer_row(trace, number) for number in range(min(len(trace.offers), _MAX_OFFERS)))
    clouds = sorted({each.cloud for each in trace.offers})
    holes = sum(_holes(trace, number) for number in range(len(trace.offers)))
    more = len(trace.offers) - len(rows)
    warnings = [
        f"{each.offer.name} at {stamp(each.at)} is said to be {each.dropped} and {each.kept}; the latter is kept"
        for each in trace.contradictions[:5]
    ]
    if trace.contradictions[5:]:
        warnings.append(f"{len(trace.contradictions) - 5} more such contradictions")
    watched = [number for number in range(len(trace.offers)) if _watched(trace, number) > 0]
    sentence = (
        f"{counted(len(trace.offers), 'offer')} of {listed(clouds)} from {day(trace.begin)} to {day(trace.end)}, "
        f"{counted(int((~np.isnan(trace.price)).sum()), 'price')}, {counted(holes, 'hole')} of more than "
        f"{span(trace.max_gap)}. "
        + (f"How many machines there were was watched of {counted(len(watched), 'offer')}." if watched else
           "How many machines there were was not watched.")
    )  # fmt: skip
    return Page(
        title="A market",
        source=source,
        subtitle=tuple(trace.sources[:3]),
        verdict=(sentence,),
        grids=(Grid(
            "Offers", ("kind", "covered", "lowest $/h", "mean", "highest", "changes", "holes", "available"), rows,
            frozenset({0, 1}), first="offer", ranks=(0, 5, 1, 3, 2, 4, 6, 7, 8),
            below=f"{more} more; --json has all" if more else "",
        ),),
        warnings=tuple(warnings),
    )  # fmt: skip


def _pieces(trace: MarketTrace, number: int) -> tuple[Array, Array, Array]:
    """The offer's prices, how many machines there were, and for how many seconds each of that held."""
    rows = slice(trace.first[number], trace.first[number + 1])
    return trace.price[rows], trace.available[rows], np.minimum(trace.ends[rows], trace.end) - trace.at[rows]


def _holes(trace: MarketTrace, number: int) -> int:
    """Stretches without a price between such with one."""
    known = ~np.isnan(_pieces(trace, number)[0])
    return max(int((np.diff(known.astype(int)) == 1).sum()) - 1, 0)


def _watched(trace: MarketTrace, number: int) -> float:
    """Share of the offer's priced time in which somebody saw how many there were."""
    price, available, lasts = _pieces(trace, number)
    known = ~np.isnan(available)
    whole = lasts[~np.isnan(price) | known].sum()
    return float(lasts[known].sum() / whole) if whole > 0 else 0.0


def _offer_facts(trace: MarketTrace, number: int) -> dict[str, Any]:
    price, available, lasts = _pieces(trace, number)
    known, seen = ~np.isnan(price), ~np.isnan(available)
    covered, looked = float(lasts[known].sum()), float(lasts[seen].sum())
    begins = trace.at[trace.first[number] : trace.first[number + 1]]
    return {
        **trace.offers[number]._asdict(),
        "covered_seconds": covered,
        "begin": stamp(begins[known][0]) if known.any() else None,
        "lowest": float(price[known].min()) if known.any() else None,
        "mean": float((price[known] * lasts[known]).sum() / covered) if covered > 0 else None,
        "highest": float(price[known].max()) if known.any() else None,
        "changes": int((np.diff(price[known]) != 0).sum()),
        "holes": _holes(trace, number),
        "availability_watched": _watched(trace, number),
        "available": float((lasts[seen] * (available[seen] >= 1)).sum() / looked) if looked > 0 else None,
    }


def _offer_row(trace: MarketTrace, number: int) -> tuple[str, ...]:
    facts, offer = _offer_facts(trace, number), trace.offers[number]
    prices = ["unknown" if facts[name] is None else f"{facts[name]:.4g}" for name in ("lowest", "mean", "highest")]
    there = (
        "not watched"
        if facts["available"] is None
        else f"{facts['available']:.0%} of {facts['availability_watched']:.0%}"
    )
    name = f"{offer.instance}@{offer.place}"
    return (
        name,
        offer.kind,
        span(facts["covered_seconds"]),
        *prices,
        f"{facts['changes']:,}",
        str(facts["holes"]),
        there,
    )


def market_document(trace: MarketTrace, source: str) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "schema": SCHEMA,
        "market": source,
        "begin": stamp(trace.begin),
        "end": stamp(trace.end),
        "max_gap_seconds": trace.max_gap,
        "sources": list(trace.sources),
        "duplicates": trace.duplicates,
        "contradictions": [
            {"offer": each.offer.name, "at": stamp(each.at), "kept": each.kept, "dropped": each.dropped}
            for each in trace.contradictions
        ],
        "offers": [_offer_facts(trace, number) for number in range(len(trace.offers))],
    }


# A backtest


def backtest_page(found: Backtest, source: str) -> Page:
    """A line for each policy, hindsight last."""
    lines = summaries(found)
    job, unlimited = found.market.job, found.deadline is None
    return Page(
        title=f"{job.name} on {source}",
        source=_starts(found),
        subtitle=tuple(f"{counted(count, 'start')} left out: {why}" for why, count in sorted(found.left_out.items())),
        verdict=(_verdict(found, lines),),
        grids=(_policies(found, lines),),
        warnings=tuple(_warnings(found, lines)),
        chapters=(
            Chapter("policies", "What each policy costs", label="Policies", charts=(_costs(lines),)),
            Chapter("parts", "Where the dollars go", grids=(_parts(lines),)),
            Chapter(
                "how", "How it was replayed", facts=tuple(_inputs(found)), points=tuple(_how(found)), brief=False
            ),
        ),
        footer="Without --deadline, hindsight may take as long as the slowest policy." if unlimited else "",
    )


def _starts(found: Backtest) -> str:
    first, last = found.starts[0], found.starts[-1]
    late = "" if found.deadline is None else f", each to be done in {span(found.deadline)}"
    cut = " (interrupted)" if found.interrupted else ""
    return f"{counted(len(found.starts), 'start')}, {day(first)} to {day(last)}{late}{cut}"


def _verdict(found: Backtest, lines: Sequence[PolicySummary]) -> str:
    able = [line for line in lines if not line.late] or list(lines)
    best = min(able, key=lambda line: line.mean)
    base = next(line for line in lines if line.name == found.reference)
    in_time = " of those that are never late" if any(line.late for line in lines) and not best.late else ""
    if best.name == base.name:
        sentence = f"Stay: {best.name} costs least{in_time} in the mean, {dollars(best.mean)}"
    else:
        less = _percent(abs(best.against))
        word = "below" if best.against <= 0 else "above"
        sentence = (
            f"{best.name} costs least{in_time} in the mean: {dollars(best.mean)}, {less} {word} {base.name} "
            f"({dollars(base.mean)})"
        )
    if best.regret is not None:
        sentence += f", and {_percent(best.regret)} above the least that was possible"
    return sentence + "."


def _percent(share: float) -> str:
    return f"{share:.1%}" if abs(share) < 0.1 else f"{share:.0%}"


def _policies(found: Backtest, lines: Sequence[PolicySummary]) -> Grid:
    rows = [_line(found, line) for line in lines]
    cost = np.array([each.bound for each in found.foreseen if each.bound is not None])
    if len(cost):
        base = next(line for line in lines if line.name == found.reference)
        against = f"{float(cost.mean()) / base.mean - 1:+.0%}" if len(cost) == len(found.starts) else ""
        few = "" if len(cost) == len(found.starts) else f" of {len(cost)} starts"
        least = f"{dollars(float(cost.mean()))} {_range(cost)}{few}"
        rows.append(("hindsight", least, against, "at least", "", "", "", "", "", ""))
    against = f"against {found.reference.partition(':')[0]}"
    head = (
        "dollars (5-95 %)",
        against,
        "above hindsight",
        "late",
        "moves",
        "stalls",
        "boot+lost",
        "idle GPUs",
        "egress",
    )
    return Grid("", head, tuple(rows), frozenset({0}), first="policy", ranks=(0, 0, 1, 2, 3, 4, 7, 6, 8, 5))


def _line(found: Backtest, line: PolicySummary) -> tuple[str, ...]:
    runs = np.array([run.dollars for run in found.played[line.name]])
    parts = line.parts
    stalls = sum(value for name, value in parts.items() if name in STALLS and name != "compute")
    waste = sum(parts.get(name, 0.0) for name in ("boot", "download", "checkpoints", "lost work", "rounding"))
    late = "-" if found.deadline is None else f"{line.late} of {len(runs)}"
    regret = "unknown" if line.regret is None else _percent(line.regret)
    known = any(rate.stalls for rate in found.market.job.rates.values())
    return (
        line.name,
        f"{dollars(line.mean)} {_range(runs)}",
        "" if line.name == found.reference else f"{line.against:+.0%}",
        regret,
        late,
        f"{line.moves:.1f}",
        _share(stalls, line.mean) if known else "unknown",
        _share(waste, line.mean),
        _share(parts.get("idle GPUs", 0.0), line.mean),
        _share(parts.get("egress", 0.0), line.mean),
    )


def _range(values: Any) -> str:
    low, high = np.percentile(values, 5), np.percentile(values, 95)
    return f"({low:,.2f}-{high:,.2f})" if high < 100 else f"({low:,.0f}-{high:,.0f})"


def _share(part: float, whole: float) -> str:
    return "unknown" if whole <= 0 else f"{part / whole:.1%}"


def _warnings(found: Backtest, lines: Sequence[PolicySummary]) -> Iterator[str]:
    market = found.market
    if market.excluded:
        names = sorted(market.excluded)
        yield f"Without a rate, and so left out: {listed(names, 8)} ({market.excluded[names[0]]})"
    watched = float(np.mean([_watched(market.trace, number) for number in range(len(market.offers))]))
    if watched < 0.999:
        never = "never" if watched == 0 else f"for {watched:.1%} of the time"
        yield f"Whether machines could be had was watched {never}; at all other times they are taken to be there"
    for line in lines:
        if line.avoidable:
            yield f"{line.name} was late in {counted(line.avoidable, 'run')} in which hindsight was in time"
    if len(found.starts) < 10:
        yield f"{counted(len(found.starts), 'start')}: one stretch of time, and how another one goes is unknown"


def _costs(lines: Sequence[PolicySummary]) -> Chart:
    rows, table = [], []
    for line in lines:
        begin, pieces = 0.0, []
        for name in PARTS:
            value = line.parts.get(name, 0.0)
            if value > 0:
                tip = f"{line.name}: {name} {dollars(value)}"
                pieces.append(BarPiece(begin, begin + value, name if name in STALLS else "plain", tip))
                begin += value
        rows.append(LaneRow(line.name, dollars(line.mean), tuple(pieces), line.low, line.high))
        table.append((line.name, f"{line.mean:.2f}", f"{line.low:.2f} to {line.high:.2f}"))
    title = "What each policy costs"
    grid = Grid(title, ("dollars", "5-95 %"), tuple(table), frozenset({0}), first="policy")
    how = "Means over all starts, with the 5th and the 95th percentile."
    return lane_chart("policy-costs", title, rows, lanes_ruler(rows, "US dollars"), grid, how=how)


def _parts(lines: Sequence[PolicySummary]) -> Grid:
    names = [name for name in PARTS if any(line.parts.get(name) for line in lines)]
    rows = [
        (line.name, *(f"{line.parts.get(name, 0.0):.2f}" for name in names), f"{line.mean:.2f}") for line in lines
    ]
    return Grid("Mean dollars", (*names, "bill"), tuple(rows), frozenset({0}), first="policy")


def _inputs(found: Backtest) -> Iterator[tuple[str, str]]:
    job = found.market.job
    yield "work", f"{job.samples:,.0f} samples"
    for name, text, known in job.inputs():
        yield name, f"{text} ({known})"
    for name, rate in sorted(job.rates.items()):
        used = "" if rate.used is None or rate.used == rate.gpus else f", {rate.used} of {rate.gpus} GPUs used"
        yield name, f"{rate.samples_per_second:.4g} samples/s ({rate.known}: {rate.why}{used})"


def _how(found: Backtest) -> Iterator[str]:
    yield from (f"{each.name}: {each.text}." for each in found.policies if each.text)
    yield "A lease is paid for the whole machine from grant to release, at the price in force each second."
    yield f"Not counted: {'; '.join(not_counted(found.market.fees, found.market.offers))}."


def backtest_document(found: Backtest, source: str) -> dict[str, Any]:
    """The same as JSON: per policy and start dollars, finish_seconds, leases, moves, parts; and hindsight."""
    market = found.market
    return {
        "schema": SCHEMA,
        "market": source,
        "job": market.job.model_dump(),
        "deadline_seconds": found.deadline,
        "interrupted": found.interrupted,
        "left_out": dict(found.left_out),
        "excluded": dict(market.excluded),
        "policies": {
            each.name: [
                {
                    "start": stamp(run.start),
                    "dollars": run.dollars,
                    "finish_seconds": run.seconds,
                    "late": run.late,
                    "moves": run.moves,
                    "revocations": run.revocations,
                    "parts": dict(run.parts),
                    "leases": [
                        {
                            "offer": market.offers[lease.offer].name,
                            "cloud": market.offers[lease.offer].cloud,
                            "granted": stamp(lease.granted),
                            "seconds": lease.ended - lease.granted,
                            "seconds_paid": lease.seconds_paid,
                            "dollars": lease.dollars,
                            "end": lease.end,
                        }
                        for lease in run.leases
                    ],
                    "above_hindsight": None if not known.bound or run.late else run.dollars / known.bound - 1,
                }
                for run, known in zip(found.played[each.name], found.foreseen, strict=True)
            ]
            for each in found.policies
        },
        "hindsight": [
            {
                "start": stamp(each.start),
                "bound": each.bound,
                "earliest_seconds": each.earliest,
            }
            for each in found.foreseen
        ],
    }
