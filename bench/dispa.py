"""The accounting of DISPA'20, to the letter, and the same with one assumption after the other taken back.

"Analysis and Exploitation of Dynamic Pricing in the Public Cloud for ML Training" (Narayanan et al., DISPA 2020;
code: stanford-futuredata/training_on_a_dime, ``single_job_cost_analysis.ipynb``) looks at prices once a day. What it
takes for granted, each a switch here:

- of a day's records the cheapest is chosen and billed that day, later the newest of each day; a day without a record,
  and all time after the log, keep the last price;
- a job that rents one of an instance's g GPUs pays 1/g of it, and trains as on one GPU (``share_billed``);
- offers of Azure are ranked by throughput over the whole instance's price (``whole_price_ranks``), those of AWS by
  throughput over a GPU's share;
- starts before a cloud's log begins count (``uncovered_starts``), and moves are free and take no time.

The job is so many days of the reference instance. Days, not seconds: the honest replay is ``replaying``'s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stash.core.errors import UserError
from stash.market.market_trace import MarketTrace
from stash.predict.draws import Array

DAY = 86_400
POLICIES = ("stay", "gpu-type", "packed", "multi-cloud", "daily")
LAST_DAYS, LEFT_OUT = 35, 5
"""Starts are the last days with a record of the reference, all but the very last of them."""


@dataclass(frozen=True)
class StudyAssumptions:
    """What is taken for granted; all of it is the study itself."""

    share_billed: bool = True
    """Only the GPU that is used is paid for; else the whole instance."""
    whole_price_ranks: bool = True
    """Of a cloud that is not the reference's; else what is billed ranks."""
    uncovered_starts: bool = True
    """Also before every cloud's log has begun."""
    one_gpu: bool = True
    """An instance trains as fast as one of its GPUs; else as all of them were measured to."""


@dataclass(frozen=True)
class StudyRate:
    """What an instance does for a job."""

    gpus: int
    of_one: float
    """Work a second of one GPU."""
    of_all: float | None = None
    """Of all its GPUs together; ``None``: not measured."""


@dataclass(frozen=True, eq=False)
class DayGrid:
    """A trace by UTC days: ``[offer, day]``, NaN without a record."""

    trace: MarketTrace
    first: int
    """The first day, in days since 1970."""
    lowest: Array
    newest: Array


def day_grid(trace: MarketTrace) -> DayGrid:
    """Every record's price on its UTC day."""
    number = np.repeat(np.arange(len(trace.offers)), np.diff(trace.first))
    rows = np.flatnonzero((trace.at > 0) & ~np.isnan(trace.price))
    if not len(rows):
        raise UserError("the market has no prices, so there is nothing to replay")
    days = trace.at[rows] // DAY
    first = int(days.min())
    lowest = np.full((len(trace.offers), int(days.max()) - first + 1), np.inf)
    newest = np.full(lowest.shape, np.nan)
    np.minimum.at(lowest, (number[rows], days - first), trace.price[rows])
    newest[number[rows], days - first] = trace.price[rows]  # rows ascend in time, so the last one stays
    return DayGrid(trace, first, np.where(np.isinf(lowest), np.nan, lowest), newest)


@dataclass(frozen=True, eq=False)
class StudyLadder:
    """Costs of every policy from every start: ``[policy, start]``."""

    starts: tuple[int, ...]
    """Days since 1970."""
    dollars: Array

    def reduction(self, policy: str) -> float:
        """Mean cost of ``stay`` over the mean cost of ``policy``."""
        means = self.dollars.mean(axis=1)
        return float(means[0] / means[POLICIES.index(policy)])


def ladder(
    grid: DayGrid, rates: Mapping[str, StudyRate], reference: str, days: float, assumed: StudyAssumptions
) -> StudyLadder:
    """All policies from all starts for a job of so many ``days`` on ``reference``; raises UserError."""
    if reference not in rates:
        raise UserError(f"the study's job is counted in days of {reference}, of which no rate is given")
    offers = grid.trace.offers
    home = next((each.cloud for each in offers if each.instance == reference), None)
    if home is None:
        raise UserError(f"the study stays on {reference}, of which the market has no offer")
    run = _Run(grid, rates, reference, home, assumed)
    starts = run.starts()
    if not starts:
        raise UserError(f"no day with a price of {reference} is covered by every cloud; nothing can be replayed")
    work = days * DAY * rates[reference].of_one
    costs = [[run.cost(policy, start, work) for start in starts] for policy in POLICIES]
    return StudyLadder(tuple(start + grid.first for start in starts), np.array(costs))


class _Run:
    """What does not change from start to start: what a day of each offer costs, does and ranks."""

    def __init__(
        self, grid: DayGrid, rates: Mapping[str, StudyRate], reference: str, home: str, assumed: StudyAssumptions
    ) -> None:
        self._assumed, self._newest = assumed, grid.newest
        offers = grid.trace.offers
        known = [self._rate(rates.get(each.instance)) for each in offers]
        self._per_day = np.array([0.0 if each is None else each * DAY for each in known])
        gpus = np.array([rates[each.instance].gpus if each.instance in rates else 1 for each in offers])
        self._bills = 1.0 / gpus if assumed.share_billed else np.ones(len(offers))
        other = np.array([each.cloud != home for each in offers])
        ranks = np.where(other & assumed.whole_price_ranks, 1.0, self._bills)
        self._worth = self._per_day[:, None] / (grid.lowest * ranks[:, None])
        self._worth[np.isnan(self._worth)] = 0.0
        self._lowest = grid.lowest
        is_home = ~other
        single = np.array([each.instance in rates and rates[each.instance].gpus == 1 for each in offers])
        self._stays = np.array([each.instance == reference for each in offers])
        self._allowed = {
            "stay": self._stays,
            "gpu-type": is_home & single,
            "packed": is_home,
            "multi-cloud": np.ones(len(offers), dtype=bool),
            "daily": np.ones(len(offers), dtype=bool),
        }
        named = {each.cloud for each in offers if each.instance in rates}
        self._clouds = [np.array([each.cloud == cloud for each in offers]) for cloud in named]
        self._last = max(np.flatnonzero(~np.isnan(grid.newest[self._stays]).all(axis=0)))
        self._best: dict[tuple[str, int], int] = {}

    def _rate(self, rate: StudyRate | None) -> float | None:
        if rate is None or self._assumed.one_gpu or rate.gpus == 1:
            return None if rate is None else rate.of_one
        return rate.of_all

    def starts(self) -> list[int]:
        known = np.flatnonzero(~np.isnan(self._newest[self._stays]).all(axis=0))
        days = [int(day) for day in known[-LAST_DAYS:-LEFT_OUT]]
        if self._assumed.uncovered_starts:
            return days
        return [day for day in days if all(not np.isnan(self._newest[each, day]).all() for each in self._clouds)]

    def _choice(self, policy: str, day: int) -> int:
        key = (policy, day)
        if key not in self._best:
            worth = np.where(self._allowed[policy], self._worth[:, day], 0.0)
            self._best[key] = int(worth.argmax()) if worth.max() > 0 else -1
        return self._best[key]

    def cost(self, policy: str, start: int, work: float) -> float:
        """Dollars from ``start``; as in the notebook, what is not done by the end of the log costs the last price."""
        offer = self._choice(policy, start)
        if offer < 0:
            return math.nan
        price, dollars, left = float(self._lowest[offer, start]), 0.0, work
        for day in range(start, self._last):
            rate, bill = float(self._per_day[offer]), price * float(self._bills[offer]) * 24
            if left <= rate:
                return dollars + left / rate * bill
            left, dollars = left - rate, dollars + bill
            chosen = self._choice(policy, day + 1) if policy == "daily" else -1
            if chosen >= 0:
                offer, price = chosen, float(self._lowest[chosen, day + 1])
            elif not math.isnan(self._newest[offer, day + 1]):
                price = float(self._newest[offer, day + 1])
        return dollars + left / float(self._per_day[offer]) * price * float(self._bills[offer]) * 24


CORRECTIONS: tuple[tuple[str, StudyAssumptions], ...] = (
    ("the study", StudyAssumptions()),
    ("whole instances", StudyAssumptions(share_billed=False, whole_price_ranks=False)),
    ("covered starts", StudyAssumptions(share_billed=False, whole_price_ranks=False, uncovered_starts=False)),
    (
        "all GPUs as measured",
        StudyAssumptions(share_billed=False, whole_price_ranks=False, uncovered_starts=False, one_gpu=False),
    ),
)
