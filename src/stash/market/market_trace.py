"""A market as it was watched: of every offer its price and how many machines could be had, piece by piece in time.

All offers' pieces lie one behind the other in arrays, so that one binary search finds where every offer stands at a
moment, and one subtraction what an hour of it cost, whatever the price did. A piece without a price was not watched:
nothing is chosen or billed there. Every offer's first and last pieces are such. Times are whole seconds since 1970,
UTC. Knows nothing of jobs, files and policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stash.api import Array

Bools: TypeAlias = NDArray[np.bool_]
Integers: TypeAlias = NDArray[np.int_]

HOUR = 3600.0
DAY = 24 * HOUR
_BASE = 2**33
"""More seconds than there are until the year 2242, so that offer · _BASE + second sorts by offer, then by time."""
NEVER = float(_BASE - 1)


class MarketOffer(NamedTuple):
    """What is rented, where. Offers sort by cloud, region, zone and name: so do ties."""

    cloud: str
    region: str
    zone: str
    instance: str
    kind: str
    """``spot`` or ``on-demand``."""

    @property
    def place(self) -> str:
        """The zone, or the region where no zone is known."""
        return self.zone or self.region

    @property
    def name(self) -> str:
        """As ``--on`` takes it: ``p3.2xlarge@us-east-1a``; what is not spot says so."""
        return f"{self.instance}@{self.place}" + ("" if self.kind == "spot" else f":{self.kind}")


@dataclass(frozen=True, eq=False)
class MarketTrace:
    """Offers, and the pieces of each: arrays are ``[pieces of all offers]``."""

    offers: tuple[MarketOffer, ...]
    """Sorted."""
    first: Integers
    """Where each offer's pieces begin, and all end: ``[offers + 1]``."""
    at: Integers
    """When a piece begins, the first of an offer at 0; it ends with the next, the last of an offer never."""
    price: Array
    """Dollars an hour of one machine; NaN: not watched."""
    available: Array
    """Machines that could be had; NaN: not watched."""
    max_gap: float
    """Seconds that an observation is carried on without another."""
    sources: tuple[str, ...] = ()

    @cached_property
    def _key(self) -> Integers:
        return np.repeat(np.arange(len(self.offers)), np.diff(self.first)) * _BASE + self.at

    @cached_property
    def ends(self) -> Array:
        """When each piece ends; the last of an offer at ``NEVER``."""
        ends = np.append(self.at[1:], NEVER).astype(float)
        ends[self.first[1:] - 1] = NEVER
        return ends

    @cached_property
    def is_watched(self) -> Bools:
        """Whether the price or the number of machines is known in each piece."""
        return np.asarray(~(np.isnan(self.price) & np.isnan(self.available)))

    @cached_property
    def _paid(self) -> Array:
        """Dollars that one machine of each offer before, and of its own, cost until each piece began."""
        cost = np.nan_to_num(self.price) * (self.ends - self.at) / HOUR
        return np.concatenate([[0.0], np.cumsum(cost)[:-1]])

    def find(self, offer: int | Integers, moment: float | Array) -> Integers:
        """Which piece each offer is in at each moment; the two are broadcast."""
        return (
            np.searchsorted(
                self._key, offer * _BASE + np.floor(moment).astype(np.int64), side="right"
            )
            - 1
        )

    def pieces(self, now: float) -> Integers:
        """Which piece each offer is in: ``[offers]``."""
        return self.find(np.arange(len(self.offers)), now)

    def paid(self, offer: int, edges: ArrayLike) -> Array:
        """What one machine costs from each moment to the next, at the prices in force: along the last axis."""
        moments = np.asarray(edges, dtype=float)
        at = self.find(offer, moments)
        return np.diff(
            self._paid[at] + np.nan_to_num(self.price[at]) * (moments - self.at[at]) / HOUR
        )

    @cached_property
    def begin(self) -> int:
        """When anything was watched first."""
        return int(self.at[self.is_watched].min())

    @cached_property
    def end(self) -> int:
        """When everything ceased to be watched."""
        return int(self.ends[self.is_watched].max())

    def select_offers(self, chosen: Sequence[int] | Integers) -> MarketTrace:
        """The same with these offers only, one at least."""
        parts = [np.arange(self.first[number], self.first[number + 1]) for number in chosen]
        rows = np.concatenate(parts)
        first = np.cumsum([0, *map(len, parts)])
        offers = tuple(self.offers[number] for number in chosen)
        return replace(
            self,
            offers=offers,
            first=first,
            at=self.at[rows],
            price=self.price[rows],
            available=self.available[rows],
        )


def trace_of(
    offers: Sequence[MarketOffer], rows: ArrayLike, max_gap: float, sources: Iterable[str] = ()
) -> MarketTrace:
    """A trace of rows ``[row, (offer, at, price, available)]``: what was seen of the offer of that number, and when.

    It is valid for ``max_gap`` at most. Of rows of one offer and moment the later one is kept.
    """
    table = np.asarray(rows, dtype=float)
    ranked = sorted(range(len(offers)), key=offers.__getitem__)
    number = np.argsort(ranked)[table[:, 0].astype(np.int64)]
    at = table[:, 1].astype(np.int64)
    key = number * _BASE + at
    order = np.argsort(key, kind="stable")
    order = order[np.append(np.diff(key[order]) > 0, True)]
    number = number[order]
    at = at[order]
    values = table[order, 2:]
    # An unwatched piece before each offer's first row, and one after each long gap.
    is_last = np.append(np.diff(number) > 0, True)
    is_long = np.append(np.diff(at) > max_gap, True)
    hole = (is_last | is_long) & ~np.isnan(values).all(axis=1)
    numbers = np.concatenate([np.arange(len(offers)), number, number[hole]])
    ats = np.concatenate([np.zeros(len(offers), dtype=np.int64), at, at[hole] + int(max_gap)])
    nothing = np.full((1, 2), np.nan)
    whole = np.concatenate([nothing.repeat(len(offers), 0), values, nothing.repeat(hole.sum(), 0)])
    order = np.argsort(numbers * _BASE + ats, kind="stable")
    first = np.searchsorted(numbers[order], np.arange(len(offers) + 1))
    price, available = whole[order].T
    return MarketTrace(
        tuple(offers[each] for each in ranked),
        first,
        ats[order],
        price,
        available,
        max_gap,
        tuple(sources),
    )


def merge_traces(traces: Sequence[MarketTrace]) -> MarketTrace:
    """All of them as one: where several watched an offer, the last one's word is kept.

    Prices and counts are filled in from each other's traces: one may have only prices, the other only counts.
    """
    offers = sorted({each for trace in traces for each in trace.offers})
    ats = []
    prices = []
    counts = []
    for offer in offers:
        parts = [
            trace.select_offers([trace.offers.index(offer)])
            for trace in traces
            if offer in trace.offers
        ]
        moments = np.unique(np.concatenate([part.at for part in parts]))
        values = np.full((2, len(moments)), np.nan)
        for part in parts:
            theirs = np.stack([part.price, part.available])[:, part.find(0, moments)]
            values = np.where(np.isnan(theirs), values, theirs)
        ats.append(moments)
        prices.append(values[0])
        counts.append(values[1])
    first = np.cumsum([0, *map(len, ats)])
    at, price, available = (np.concatenate(each) for each in (ats, prices, counts))
    sources = dict.fromkeys(source for trace in traces for source in trace.sources)
    max_gap = max(trace.max_gap for trace in traces)
    return MarketTrace(tuple(offers), first, at, price, available, max_gap, tuple(sources))


def iso_time(seconds: float) -> str:
    """``2020-02-27T17:42:36Z``."""
    return datetime.fromtimestamp(int(seconds), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def iso_day(seconds: float) -> str:
    """``2020-02-27``."""
    return iso_time(seconds)[:10]
