"""A market as it was watched: of every offer its price and how many machines could be had, piece by piece in time.

All offers' pieces lie one behind the other in four arrays, so that one binary search finds where every offer stands
at a moment, and one subtraction what an hour of it cost, whatever the price did. A piece without a price was not
watched: nothing is chosen or billed there. Times are whole seconds since 1970, UTC. Knows nothing of jobs, files and
policies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cached_property
from typing import NamedTuple

import numpy as np

from stash.core.errors import UserError
from stash.core.formatting import listed
from stash.core.units import nearest
from stash.predict.draws import Array, Bools, Integers

HOUR = 3600.0
DAY = 24 * HOUR
_BASE = 2**33
"""More seconds than there are until the year 2242, so that offer · _BASE + second sorts by offer, then by time."""
NEVER = float(_BASE - 1)
_MAX_CONTRADICTIONS = 20


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


class Contradiction(NamedTuple):
    """Two prices, or two counts, of one offer at one moment; the later row's is kept."""

    offer: MarketOffer
    at: int
    kept: str
    dropped: str


@dataclass(frozen=True, eq=False)
class MarketTrace:
    """Offers, and the pieces of each: arrays are ``[pieces of all offers]``."""

    offers: tuple[MarketOffer, ...]
    """Sorted."""
    first: Integers
    """Where each offer's pieces begin, and all end: ``[offers + 1]``. The first piece begins at 0, unwatched."""
    at: Integers
    """When a piece begins; it ends with the next, the last of an offer never."""
    price: Array
    """Dollars an hour of one machine; NaN: not watched."""
    available: Array
    """Machines that could be had; NaN: not watched."""
    max_gap: float = 0.0
    """Seconds that an observation is carried on without another."""
    sources: tuple[str, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()
    duplicates: int = 0
    """Rows that said again what was known."""

    @cached_property
    def _key(self) -> Integers:
        number = np.repeat(np.arange(len(self.offers), dtype=np.int64), np.diff(self.first))
        return number * _BASE + self.at

    @cached_property
    def _bases(self) -> Integers:
        return np.arange(len(self.offers), dtype=np.int64) * _BASE

    @cached_property
    def ends(self) -> Array:
        """When each piece ends; the last of an offer at ``NEVER``."""
        ends = np.append(self.at[1:], NEVER).astype(float)
        ends[self.first[1:] - 1] = NEVER
        return ends

    @cached_property
    def _paid(self) -> Array:
        """Dollars that one machine cost from the offer's first piece until each began."""
        cost = np.where(np.isnan(self.price), 0.0, self.price) * np.where(self.ends < NEVER, self.ends - self.at, 0.0)
        whole = np.concatenate([[0.0], np.cumsum(cost / HOUR)[:-1]])
        return np.asarray(whole - np.repeat(whole[self.first[:-1]], np.diff(self.first)), dtype=np.float64)

    def pieces(self, now: float) -> Integers:
        """Which piece each offer is in: ``[offers]``."""
        return np.searchsorted(self._key, self._bases + int(now), side="right") - 1

    def piece(self, offer: int, now: float) -> int:
        """Which piece ``offer`` is in."""
        return int(np.searchsorted(self._key, offer * _BASE + int(now), side="right")) - 1

    def dollars(self, offer: int, begin: float, end: float) -> float:
        """What one machine costs from ``begin`` to ``end``, at the prices in force."""
        return float(self.paid(offer, np.array([end]))[0] - self.paid(offer, np.array([begin]))[0])

    def paid(self, offer: int, moments: Array) -> Array:
        """Dollars that one machine cost from the offer's first piece until each moment."""
        at = np.searchsorted(self._key, offer * _BASE + np.floor(moments).astype(np.int64), side="right") - 1
        price = np.where(np.isnan(self.price[at]), 0.0, self.price[at])
        return np.asarray(self._paid[at] + price * (moments - self.at[at]) / HOUR)

    def there(self, machines: int) -> Bools:
        """Whether in each piece the price is known and so many ``machines`` could be had.

        Where nobody watched how many there were, they are taken to be there.
        """
        return np.asarray(~(self.available < machines) & ~np.isnan(self.price))

    def until(self, there: Bools) -> Array:
        """From each piece on, when ``there`` is no longer true; of a piece that is not there, its beginning."""
        gone = np.where(there, NEVER, self.at.astype(float))
        gone[self.first[1:] - 1] = np.where(there[self.first[1:] - 1], NEVER, gone[self.first[1:] - 1])
        # Each offer's times are moved beyond those of the offers before it, so that one running minimum does for all.
        shift = np.repeat(np.arange(len(self.offers)), np.diff(self.first)) * (4.0 * _BASE)
        backwards = np.minimum.accumulate((gone + shift)[::-1])[::-1]
        return np.asarray(np.minimum(backwards - shift, NEVER), dtype=np.float64)

    @cached_property
    def begin(self) -> int:
        """When anything was watched first."""
        watched = self.at[~np.isnan(self.price) | ~np.isnan(self.available)]
        return int(watched.min()) if len(watched) else 0

    @cached_property
    def end(self) -> int:
        """When everything ceased to be watched."""
        ends = self.ends[~np.isnan(self.price) | ~np.isnan(self.available)]
        return int(min(ends.max(), NEVER)) if len(ends) else 0

    @cached_property
    def changes(self) -> Integers:
        """Every moment at which a piece begins, once each, ascending."""
        found = np.unique(self.at)
        return found[found > 0]

    def of(self, chosen: Sequence[int]) -> MarketTrace:
        """The same with these offers only."""
        parts = [np.arange(self.first[number], self.first[number + 1]) for number in chosen]
        rows = np.concatenate([*parts, np.zeros(0, dtype=np.int64)]).astype(np.int64)
        first = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
        offers = tuple(self.offers[number] for number in chosen)
        return replace(
            self, offers=offers, first=first, at=self.at[rows], price=self.price[rows], available=self.available[rows]
        )

    def number(self, name: str) -> int:
        """The offer that ``name`` says, like ``p3.2xlarge@us-east-1a`` or ``NC6@us_east``; raises UserError."""
        wanted = name.strip().lower()
        found = [
            number
            for number, each in enumerate(self.offers)
            if wanted in (each.name.lower(), f"{each.cloud}/{each.name}".lower())
        ]
        if len(found) == 1:
            return found[0]
        if found:
            full = listed([f"{self.offers[each].cloud}/{self.offers[each].name}" for each in found])
            raise UserError(f"{name} names several offers ({full}); add the cloud")
        alike = nearest(name, [each.name for each in self.offers])
        hint = f"did you mean {listed(alike)}?" if alike else "`stash market show` lists them"
        raise UserError(f"{name}: no such offer in this market; {hint}")


def trace_of(
    offers: Sequence[MarketOffer],
    offer: Integers,
    at: Integers,
    price: Array,
    available: Array,
    max_gap: float,
    sources: Iterable[str] = (),
) -> MarketTrace:
    """A trace of rows ``[row]``: what was seen of offer number ``offer`` at ``at``, valid for ``max_gap`` at most.

    A row that says the same as another of its offer and moment counts once; of rows that contradict each other the
    later one is kept, and the others are listed.
    """
    ranked = sorted(range(len(offers)), key=lambda number: offers[number])
    rank = np.empty(len(offers), dtype=np.int64)
    rank[ranked] = np.arange(len(offers))
    number = rank[offer] if len(offer) else np.zeros(0, dtype=np.int64)
    named = tuple(offers[each] for each in ranked)
    order = np.argsort(number * _BASE + at, kind="stable")
    number, at, price, available = number[order], at[order], price[order], available[order]
    twice = np.append((number[1:] == number[:-1]) & (at[1:] == at[:-1]), False)
    alike = [np.append((each[1:] == each[:-1]) | (np.isnan(each[1:]) & np.isnan(each[:-1])), True) for each in
             (price, available)]  # fmt: skip
    against = np.flatnonzero(twice & ~(alike[0] & alike[1]))
    found = tuple(
        Contradiction(
            named[number[row]],
            int(at[row]),
            _shown(price[row + 1], available[row + 1]),
            _shown(price[row], available[row]),
        )
        for row in against[:_MAX_CONTRADICTIONS]
    )
    kept = ~twice
    number, at, price, available = number[kept], at[kept], price[kept], available[kept]
    whole = _with_holes(len(named), number, at, price, available, max_gap)
    duplicates = int(twice.sum()) - len(against)
    return MarketTrace(named, *whole, max_gap, tuple(sources), found, duplicates)


def _shown(price: float, available: float) -> str:
    dollars = "no price" if np.isnan(price) else f"${price:g}/h"
    return dollars if np.isnan(available) else f"{dollars}, {available:g} available"


def _with_holes(
    count: int, number: Integers, at: Integers, price: Array, available: Array, max_gap: float
) -> tuple[Integers, Integers, Array, Array]:
    """The pieces of rows that are sorted by offer and time: an unwatched one first, and one after each long gap."""
    follows = np.append(number[1:] == number[:-1], False)
    later = np.append(at[1:], 0)
    hole = (~follows | (later - at > max_gap)) & ~(np.isnan(price) & np.isnan(available))
    numbers = np.concatenate([np.arange(count, dtype=np.int64), number, number[hole]])
    ats = np.concatenate([np.zeros(count, dtype=np.int64), at, at[hole] + int(max_gap)])
    nothing = np.full(count, np.nan)
    prices = np.concatenate([nothing, price, np.full(int(hole.sum()), np.nan)])
    availables = np.concatenate([nothing, available, np.full(int(hole.sum()), np.nan)])
    order = np.argsort(numbers * _BASE + ats, kind="stable")
    first = np.searchsorted(numbers[order], np.arange(count + 1)).astype(np.int64)
    return first, ats[order], prices[order], availables[order]


def merged(traces: Sequence[MarketTrace]) -> MarketTrace:
    """All of them as one: where several watched an offer, the last one's word is kept, and what it contradicts
    listed.

    Prices and counts are filled in from each other's files: one may have only prices, the other only counts.
    """
    if len(traces) == 1:
        return traces[0]
    offers = sorted({each for trace in traces for each in trace.offers})
    rows: list[tuple[Integers, Integers, Array, Array]] = []
    found: list[Contradiction] = []
    for number, offer in enumerate(offers):
        holding = [(trace, trace.offers.index(offer)) for trace in traces if offer in trace.offers]
        moments = np.unique(np.concatenate([trace.at[_rows(trace, which)] for trace, which in holding]))
        price, available = np.full((2, len(moments)), np.nan)
        for trace, which in holding:
            rows_of = _rows(trace, which)
            piece = rows_of[np.searchsorted(trace.at[rows_of], moments, side="right") - 1]
            for values, all_values in ((price, trace.price), (available, trace.available)):
                theirs = all_values[piece]
                both = ~np.isnan(values) & ~np.isnan(theirs) & (values != theirs)
                for row in np.flatnonzero(both)[:_MAX_CONTRADICTIONS]:
                    found.append(Contradiction(offer, int(moments[row]), f"{theirs[row]:g}", f"{values[row]:g}"))
                values[:] = np.where(np.isnan(theirs), values, theirs)
        rows.append((np.full(len(moments), number, dtype=np.int64), moments, price, available))
    columns = [np.concatenate(each) for each in zip(*rows, strict=True)]
    first = np.searchsorted(columns[0], np.arange(len(offers) + 1)).astype(np.int64)
    return MarketTrace(
        tuple(offers),
        first,
        columns[1],
        columns[2],
        columns[3],
        max(trace.max_gap for trace in traces),
        tuple(dict.fromkeys(source for trace in traces for source in trace.sources)),
        (*(each for trace in traces for each in trace.contradictions), *found)[:_MAX_CONTRADICTIONS],
        sum(trace.duplicates for trace in traces),
    )


def _rows(trace: MarketTrace, offer: int) -> Integers:
    return np.arange(trace.first[offer], trace.first[offer + 1])


def chosen(trace: MarketTrace, which: Callable[[MarketOffer], bool]) -> MarketTrace:
    """The offers for which ``which`` is true."""
    return trace.of([number for number, each in enumerate(trace.offers) if which(each)])


def stamp(seconds: float) -> str:
    """``2020-02-27T17:42:36Z``."""
    return datetime.fromtimestamp(int(seconds), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def day(seconds: float) -> str:
    """``2020-02-27``."""
    return stamp(seconds)[:10]
