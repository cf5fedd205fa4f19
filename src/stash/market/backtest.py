"""Policies replayed from many starts, beside staying."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stash.api import Tariff, tariffs
from stash.core import parsers
from stash.core.errors import UnitError, UserError
from stash.core.formatting import format_span
from stash.core.units import format_count
from stash.market.job_market import JobMarket, Policy, job_market
from stash.market.jobs import MarketJob
from stash.market.market_trace import DAY, HOUR, MarketTrace, iso_day
from stash.market.policies import DEFAULT, policy
from stash.market.replaying import ReplayedRun, UncoveredError, check_parts, play

_MOST_PLAYED = 200


@dataclass(frozen=True, eq=False)
class Backtest:
    """What every policy came to from every start that all of them could be replayed from."""

    market: JobMarket
    policies: tuple[Policy, ...]
    runs: Mapping[str, tuple[ReplayedRun, ...]]
    """By policy, in the order of ``starts``."""
    starts: tuple[float, ...]
    left_out: Mapping[str, int]
    """Starts that were not covered, by why."""
    deadline: float | None
    """Seconds."""

    @property
    def reference(self) -> str:
        """What the others are held against: ``stay``, or the first."""
        return next(
            (each.name for each in self.policies if each.name.startswith("stay")),
            self.policies[0].name,
        )

    def mean(self, name: str) -> float:
        """Dollars."""
        return float(np.mean([run.dollars for run in self.runs[name]]))

    def mean_parts(self, name: str) -> dict[str, float]:
        """Dollars by what they were for."""
        parts: Counter[str] = Counter()
        for run in self.runs[name]:
            parts.update({part: dollars / len(self.starts) for part, dollars in run.parts.items()})
        return dict(parts)


def replay(
    trace: MarketTrace,
    job: MarketJob,
    policies: Sequence[Policy | str] = DEFAULT,
    starts: str | Sequence[float] = "daily",
    deadline: float | None = None,
    *,
    home: str | None = None,
    fees: Mapping[str, Tariff] | None = None,
    excluded: Mapping[str, str] | None = None,
) -> Backtest:
    """Every policy from every start; the same starts for all.

    ``starts`` are moments (seconds since 1970), or how often: ``"daily"``, ``"hourly"``, ``"6h"``. ``deadline`` is in
    seconds from the start. ``home`` is the instance that ``stay`` holds. Raises UserError.
    """
    market = job_market(job, trace, tariffs() if fees is None else fees, excluded)
    rules = tuple(
        each if isinstance(each, Policy) else policy(each, market, home) for each in policies
    )
    names = [rule.name for rule in rules]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"policy {twice} is given twice; leave one out")
    if deadline is None and "uniform-progress" in names:
        raise UserError(
            "policy uniform-progress works towards a deadline; give one, like --deadline 8d"
        )
    moments, left_out = _covered_starts(market, starts, deadline)
    rows: list[tuple[float, list[ReplayedRun]]] = []
    for start in moments:
        try:
            runs = [play(market, rule, start, deadline) for rule in rules]
        except UncoveredError as error:
            left_out[str(error)] += 1
            continue
        for run in runs:
            check_parts(run)
        rows.append((start, runs))
    if not rows:
        raise UserError(_no_start_text(market, left_out))
    kept, played = zip(*rows, strict=True)
    by_policy = {
        rule.name: runs for rule, runs in zip(rules, zip(*played, strict=True), strict=True)
    }
    return Backtest(market, rules, by_policy, kept, left_out, deadline)


def _moments(market: JobMarket, starts: str) -> list[float]:
    """At most ``_MOST_PLAYED`` of the record, spread evenly; raises UserError."""
    try:
        every = {"daily": DAY, "hourly": HOUR}.get(starts) or parsers.duration(starts)
    except UnitError as error:
        raise UserError(f"--starts {starts}: {error}; or write daily, or hourly") from error
    begin = math.ceil(market.trace.begin / every) * every
    count = max(int((market.trace.end - begin) // every) + 1, 0)
    numbers = np.unique(np.linspace(0, count - 1, min(count, _MOST_PLAYED)).round())
    return [float(begin + number * every) for number in numbers]


def _covered_starts(
    market: JobMarket, starts: str | Sequence[float], deadline: float | None
) -> tuple[list[float], Counter[str]]:
    """Starts at which every cloud is watched, and from which the deadline is; why the others are left out."""
    trace = market.trace
    left_out = Counter[str]()
    kept = []
    clouds = np.array([each.cloud for each in market.offers])
    for start in _moments(market, starts) if isinstance(starts, str) else sorted(starts):
        missing = sorted(set(clouds) - set(clouds[~np.isnan(trace.price[trace.pieces(start)])]))
        if missing:
            left_out[f"{missing[0]} was not watched then"] += 1
        elif deadline is not None and start + deadline > trace.end:
            left_out["the deadline is after the last price"] += 1
        else:
            kept.append(float(start))
    return kept, left_out


def _no_start_text(market: JobMarket, left_out: Mapping[str, int]) -> str:
    trace = market.trace
    fastest = format_span(
        market.start_seconds(False) + market.job.samples / float(market.rates.max())
    )
    reasons = [f"{format_count(count, 'start')}: {reason}" for reason, count in left_out.items()]
    return (
        f"nothing can be replayed in the {format_span(trace.end - trace.begin)} from {iso_day(trace.begin)} on "
        f"({'; '.join(reasons) or 'no start was given'}); the job takes {fastest} on the fastest offer. Give a "
        "longer record, a nearer deadline or fewer clouds (--cloud)"
    )
