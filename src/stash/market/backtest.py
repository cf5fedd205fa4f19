"""Policies replayed from many starts, beside staying and beside the least that was possible."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from stash.core.errors import UserError
from stash.core.formatting import span
from stash.core.units import counted
from stash.market.decisions import JobMarket, Policy, job_market
from stash.market.fees import Fees, published_fees
from stash.market.foresight import Foreseen, foresee
from stash.market.jobs import MarketJob
from stash.market.market_rules import DEFAULT, policy
from stash.market.market_trace import DAY, HOUR, MarketTrace, day, stamp
from stash.market.replaying import ReplayedRun, UncoveredError, check_parts, play
from stash.predict.draws import Array, Integers

MAX_STARTS = 10_000
_MOST_PLAYED = 200


@dataclass(frozen=True, eq=False)
class Backtest:
    """What every policy came to from every start that all of them could be replayed from."""

    market: JobMarket
    policies: tuple[Policy, ...]
    played: Mapping[str, tuple[ReplayedRun, ...]]
    """By policy, in the order of ``starts``."""
    starts: tuple[float, ...]
    left_out: Mapping[str, int]
    """Starts that were not covered, by why."""
    foreseen: tuple[Foreseen, ...]
    """By start."""
    deadline: float | None
    """Seconds."""
    interrupted: bool = False

    @property
    def reference(self) -> str:
        """What the others are held against: ``stay``, or the first."""
        return next((each.name for each in self.policies if each.name.startswith("stay")), self.policies[0].name)

    def regrets(self, name: str) -> Array:
        """Cost over hindsight's bound, less 1, of runs that were in time and whose hindsight is known."""
        pairs = zip(self.played[name], self.foreseen, strict=True)
        return np.array([
            played.dollars / known.bound - 1 for played, known in pairs if not played.late and known.bound
        ])  # fmt: skip

    def avoidable(self, name: str) -> int:
        """Runs that were late although hindsight was in time."""
        if self.deadline is None:
            return 0
        pairs = zip(self.played[name], self.foreseen, strict=True)
        return sum(played.late and known.bound is not None for played, known in pairs)


def replay(
    trace: MarketTrace,
    job: MarketJob,
    policies: Sequence[Policy | str] = DEFAULT,
    starts: str | Sequence[float] = "daily",
    deadline: float | None = None,
    *,
    home: str | None = None,
    fees: Fees | None = None,
    excluded: Mapping[str, str] | None = None,
    done: Callable[[int, int], None] | None = None,
) -> Backtest:
    """Every policy from every start; the same starts for all.

    ``starts`` are moments (seconds since 1970), or how often: ``"daily"``, ``"hourly"``, ``"6h"``. ``deadline`` is in
    seconds from the start. ``home`` is the instance that ``stay`` holds. Hindsight may take until the deadline, or
    without one as long as the slowest policy. Raises UserError; Ctrl-C keeps the starts that are finished.
    """
    market = job_market(job, trace, fees or published_fees(), excluded)
    rules = tuple(each if isinstance(each, Policy) else policy(each, market, home) for each in policies)
    check_policies(rules, deadline)
    moments, left_out = _covered(market, _moments(market, starts), deadline)
    moments = _thinned(moments) if isinstance(starts, str) else moments
    found: dict[str, list[ReplayedRun]] = {rule.name: [] for rule in rules}
    kept: list[float] = []
    foreseen: list[Foreseen] = []
    interrupted = False
    for number, start in enumerate(moments):
        try:
            runs = [play(market, rule, start, deadline) for rule in rules]
            ends = [run.finish for run in runs if run.finish is not None]
            known = foresee(market, start, max(ends) if deadline is None else start + deadline)
        except UncoveredError as error:
            text = str(error)  # the same sentence for every start
            unwatched = " is not watched" in text
            left_out[text.partition(" from ")[0] if unwatched else "the record ends before the job does"] += 1
            continue
        except KeyboardInterrupt:
            interrupted = True
            break
        for run in runs:
            check_parts(run)
            found[run.policy].append(run)
        kept.append(start)
        foreseen.append(known)
        if done is not None:
            done(number + 1, len(moments))
    if not kept:
        if interrupted:
            raise KeyboardInterrupt
        raise UserError(_nothing(market, left_out))
    played = {name: tuple(runs) for name, runs in found.items()}
    return Backtest(market, rules, played, tuple(kept), dict(left_out), tuple(foreseen), deadline, interrupted)


def check_policies(rules: Sequence[Policy], deadline: float | None) -> None:
    """Raises UserError where there are none, one is there twice, or one lacks its deadline."""
    names = Counter(rule.name for rule in rules)
    twice = next((name for name, count in names.items() if count > 1), None)
    if not rules:
        raise UserError("no policy is given; name some, like --policy stay,daily,look-ahead")
    if twice is not None:
        raise UserError(f"policy {twice} is given twice; leave one out")
    if deadline is None:
        needs = next((rule.name for rule in rules if rule.name.partition(":")[0] == "uniform-progress"), None)
        if needs is not None:
            raise UserError(f"policy {needs} works towards a deadline; give one, like --deadline 8d")


def _moments(market: JobMarket, starts: str | Sequence[float]) -> list[float]:
    if not isinstance(starts, str):
        return sorted(float(each) for each in starts)
    every = every_seconds(starts)
    begin = math.ceil(market.trace.begin / every) * every
    count = int((market.trace.end - begin) // every) + 1
    if count > MAX_STARTS:
        raise UserError(f"--starts {starts}: {count:,} starts are more than {MAX_STARTS:,}; start less often")
    return [begin + number * every for number in range(max(count, 0))]


def _thinned(moments: list[float]) -> list[float]:
    """``_MOST_PLAYED`` of them at most, spread evenly."""
    if len(moments) <= _MOST_PLAYED:
        return moments
    return [moments[round(each)] for each in np.linspace(0, len(moments) - 1, _MOST_PLAYED)]


def every_seconds(starts: str) -> float:
    """``daily``, ``hourly`` or a time, like ``6h``; raises UserError."""
    from stash.core import parsers
    from stash.core.errors import UnitError

    named = {"daily": DAY, "hourly": HOUR}
    if starts in named:
        return named[starts]
    try:
        return parsers.duration(starts)
    except UnitError as error:
        raise UserError(f"--starts {starts}: {error}; or write daily, or hourly") from error


def _covered(market: JobMarket, moments: Sequence[float], deadline: float | None) -> tuple[list[float], Counter[str]]:
    """Starts at which every cloud is watched, and from which the deadline is; why the others are left out."""
    trace = market.trace
    clouds = sorted({each.cloud for each in market.offers})
    of_cloud = {cloud: market.numbers(lambda offer, cloud=cloud: offer.cloud == cloud) for cloud in clouds}  # type: ignore[misc]
    left_out: Counter[str] = Counter()
    kept = []
    for start in moments:
        priced = ~np.isnan(trace.price[trace.pieces(start)])
        missing = next((cloud for cloud in clouds if not priced[of_cloud[cloud]].any()), None)
        if missing is not None:
            left_out[_unwatched(market, missing, of_cloud[missing], start)] += 1
        elif deadline is not None and start + deadline > trace.end:
            left_out["the deadline is after the last price"] += 1
        else:
            kept.append(start)
    return kept, left_out


def _unwatched(market: JobMarket, cloud: str, numbers: Integers, start: float) -> str:
    begins = market.trace.of([int(each) for each in numbers]).begin
    return f"{cloud}'s prices begin later" if start < begins else f"{cloud} was not watched then"


def _nothing(market: JobMarket, left_out: Mapping[str, int]) -> str:
    trace = market.trace
    fastest = market.start_seconds(False) + market.job.samples / float(market.rates.max())
    long = f"the job takes {span(fastest)} on the fastest offer, and the record has {span(trace.end - trace.begin)}"
    why = (
        "; ".join(f"{counted(count, 'start')}: {reason}" for reason, count in left_out.items())
        or "no start was given"
    )
    return (
        f"nothing can be replayed between {stamp(trace.begin)} and {stamp(trace.end)} ({why}); {long}. Give a longer "
        "record, a nearer deadline or fewer clouds (--cloud)"
    )


def impossible(found: Backtest) -> str | None:
    """What to say where no start can be in time, not even in hindsight."""
    if found.deadline is None or any(each.bound is not None for each in found.foreseen):
        return None
    market = found.market
    late = []
    for start in found.starts[:5]:
        seen = foresee(market, start, float(market.trace.end))
        if seen.earliest is not None:
            late.append((seen.earliest, start))
    if not late:
        return f"--deadline: no course is done in {span(found.deadline)}, nor by the end of the record"
    seconds, start = min(late)
    return (
        f"--deadline: no course is done in {span(found.deadline)}: knowing all prices, the job would take "
        f"{span(seconds)} from {day(start)} on; allow at least that"
    )


@dataclass(frozen=True)
class PolicySummary:
    """One line of the table."""

    name: str
    mean: float
    low: float
    high: float
    against: float
    """Mean over the reference's mean, less 1."""
    regret: float | None
    """Mean above hindsight's bound."""
    late: int
    avoidable: int
    moves: float
    revocations: float
    seconds: float | None
    """Mean; ``None``: some run was not done."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Mean dollars."""


def summaries(found: Backtest) -> list[PolicySummary]:
    """Every policy in one line: means, and the 5th and 95th percentile over starts."""
    base = float(np.mean([run.dollars for run in found.played[found.reference]]))
    lines = []
    for name, runs in found.played.items():
        dollars = np.array([run.dollars for run in runs])
        regrets = found.regrets(name)
        parts: dict[str, float] = defaultdict(float)
        for run in runs:
            for part, value in run.parts.items():
                parts[part] += value / len(runs)
        times = [run.seconds for run in runs]
        lines.append(PolicySummary(
            name, float(dollars.mean()), float(np.percentile(dollars, 5)), float(np.percentile(dollars, 95)),
            float(dollars.mean()) / base - 1 if base else math.nan,
            float(regrets.mean()) if len(regrets) else None,
            sum(run.late for run in runs), found.avoidable(name),
            float(np.mean([run.moves for run in runs])), float(np.mean([run.revocations for run in runs])),
            None if None in times else float(np.mean([each for each in times if each is not None])), dict(parts),
        ))  # fmt: skip
    return lines
