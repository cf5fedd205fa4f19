"""One job on one market, and the one record of where it stands that a policy decides on.

A policy is a pure function ``decide(state) -> PolicyDecision``. It is asked when the job begins, when its machine is
taken away, when it asked to be, and, unless it said otherwise, whenever an offer changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from stash.api import Array, Tariff
from stash.core.errors import UserError
from stash.core.formatting import join_names
from stash.market.jobs import InstanceRate, MarketJob
from stash.market.market_trace import HOUR, Bools, Integers, MarketOffer, MarketTrace

CloudRegion = tuple[str, str]
"""Cloud and region; without a region all of the cloud."""


@dataclass(frozen=True, eq=False)
class JobMarket:
    """One job on one market: the offers on which its speed is known. Arrays are ``[offer]``."""

    job: MarketJob
    trace: MarketTrace
    """Of these offers only."""
    fees: Mapping[str, Tariff]
    excluded: Mapping[str, str] = field(default_factory=dict)
    """Instances without a forecast, and why."""

    @property
    def offers(self) -> tuple[MarketOffer, ...]:
        return self.trace.offers

    @cached_property
    def speeds(self) -> list[InstanceRate]:
        return [rate for each in self.offers if (rate := self.job.rate(each)) is not None]

    @cached_property
    def rates(self) -> Array:
        """Samples a second."""
        return np.array([each.samples_per_second for each in self.speeds])

    @cached_property
    def there(self) -> Bools:
        """Whether in each piece the price is known and all machines could be had: ``[piece]``.

        Where nobody watched how many there were, they are taken to be there.
        """
        return np.asarray(~(self.trace.available < self.job.machines) & ~np.isnan(self.trace.price))

    def offer_end(self, offer: int, now: float) -> float:
        """When an offer that is there ``now`` is no longer."""
        piece = int(self.trace.find(offer, now))
        return float(
            self.trace.at[piece + int(self.there[piece : self.trace.first[offer + 1]].argmin())]
        )

    def start_seconds(self, resumes: bool) -> float:
        """From grant to work: boot and fetch."""
        return self.job.boot + self.job.fetch_seconds(resumes)

    @cached_property
    def home(self) -> CloudRegion | None:
        """In which the data lie; ``None``: where the first machine is."""
        named = self.job.data_in
        if named is None:
            return None
        cloud, slash, region = named.partition("/")
        known = {
            (each.cloud, each.region) for each in self.offers if not slash and each.region == named
        }
        return min(known) if known else (cloud, region)

    def data_dollars(self, home: CloudRegion, offer: int) -> float:
        """Of bringing the data from a region to that of an offer."""
        gone, there = (
            MarketOffer(*region, "", "", "") for region in (home, self.offers[offer][:2])
        )
        return move_dollars(self.fees, gone, there, self.job.data)


def job_market(
    job: MarketJob,
    trace: MarketTrace,
    fees: Mapping[str, Tariff],
    excluded: Mapping[str, str] | None = None,
) -> JobMarket:
    """The watched part of ``trace`` on which the job's speed is known; raises UserError if there is none."""
    rated = [job.rate(each) is not None for each in trace.offers]
    known = np.flatnonzero(rated & np.logical_or.reduceat(trace.is_watched, trace.first[:-1]))
    why = "the job has no rate for it"
    missing = {
        f"{each.cloud}/{each.instance}": why for each in trace.offers if job.rate(each) is None
    }
    if not len(known):
        names = join_names(sorted(missing)) or "a record with prices"
        raise UserError(f"{job.name} has no rate for any instance that was watched; add {names}")
    return JobMarket(job, trace.select_offers(known), fees, {**missing, **(excluded or {})})


class PolicyDecision(NamedTuple):
    """What is to be held from now on; what is held otherwise is saved and released."""

    hold: int | None
    """The offer of this number; ``None``: nothing."""
    until: float = math.inf
    """When to be asked again at the latest."""
    changes: bool = True
    """Whether to be asked when an offer changes."""
    memory: Any = None
    """What the next state brings."""


@dataclass(frozen=True, eq=False)
class JobState:
    """Where the job stands, and every offer as it is known now; arrays are ``[offer]``."""

    market: JobMarket
    now: float
    started: float
    deadline: float | None = None
    """A moment, not a duration."""
    done: float = 0.0
    """Samples trained so far, those included that a revocation now would destroy."""
    saved: float = 0.0
    """Of them, in a finished checkpoint."""
    held: int | None = None
    ready: float = 0.0
    """When the boot and the fetch of what is held end, or ended."""
    copies: tuple[CloudRegion, ...] = ()
    """That have the data; the first one had them before."""
    memory: Any = None

    @property
    def left(self) -> float:
        """Samples."""
        return self.market.job.samples - self.done

    @cached_property
    def _pieces(self) -> Integers:
        return self.market.trace.pieces(self.now)

    @cached_property
    def prices(self) -> Array:
        """Dollars an hour of all machines that the job rents together; NaN: not watched."""
        return np.asarray(self.market.trace.price[self._pieces] * self.market.job.machines)

    @cached_property
    def there(self) -> Bools:
        """Whether it could be rented."""
        return np.asarray(self.market.there[self._pieces])

    @cached_property
    def costs(self) -> Array:
        """Dollars of a sample, whether or not the offer can be rented; NaN: not watched."""
        return np.asarray(self.prices / (HOUR * self.market.rates))

    @cached_property
    def next_change(self) -> float:
        """For the replay alone: when the first offer changes."""
        return float(self.market.trace.ends[self._pieces].min())

    def best(self, allowed: Integers | None = None) -> int | None:
        """The offer that is cheapest for a sample, of those ``allowed`` that are there. Ties: the first."""
        numbers = np.flatnonzero(self.there) if allowed is None else allowed[self.there[allowed]]
        return int(numbers[self.costs[numbers].argmin()]) if len(numbers) else None

    def move_cost(self, to: int) -> float:
        """Dollars of a move from what is held: save · p_old + (boot + fetch) · p_new + egress, at today's prices.

        Egress is that of the checkpoint, and of the data where their region has no copy yet.
        """
        assert self.held is not None
        market, place = self.market, self.market.offers[to]
        egress = move_dollars(market.fees, market.offers[self.held], place, market.job.checkpoint)
        if self.copies and place[:2] not in self.copies:
            egress += market.data_dollars(self.copies[0], to)
        save = market.job.save_seconds * float(np.nan_to_num(self.prices[self.held]))
        return (save + market.start_seconds(resumes=True) * float(self.prices[to])) / HOUR + egress


@dataclass(frozen=True)
class Policy:
    """A named rule."""

    name: str
    decide: Callable[[JobState], PolicyDecision]


GB = 1e9
_FACTS = {
    "zone_dollars_per_gb": "data between zones",
    "region_dollars_per_gb": "data between regions",
    "egress_dollars_per_gb": "data that leave",
}


def move_dollars(
    fees: Mapping[str, Tariff], gone: MarketOffer, to: MarketOffer, amount: float
) -> float:
    """Of so many bytes from where ``gone`` is to where ``to`` is; a ``gone`` without a region is all of its cloud."""
    if gone.cloud != to.cloud:
        fact = "egress_dollars_per_gb"
    elif not gone.region or (gone.region, gone.zone) == (to.region, to.zone):
        return 0.0
    else:
        fact = "region_dollars_per_gb" if gone.region != to.region else "zone_dollars_per_gb"
    known = getattr(fees.get(gone.cloud), fact, None)
    return 0.0 if known is None else known.value * amount / GB


def not_counted(fees: Mapping[str, Tariff], clouds: Iterable[str]) -> list[str]:
    """What no source says of some of the clouds."""
    return [
        f"{what} of {cloud}"
        for cloud in sorted(clouds)
        for fact, what in _FACTS.items()
        if getattr(fees.get(cloud), fact, None) is None
    ]
