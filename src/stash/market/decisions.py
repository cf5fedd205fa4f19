"""What a policy sees and says: a board that knows nothing later than now, the job's state, and four answers.

A policy is a pure function ``decide(now, state, board, memory) -> (answer, memory)``. It is asked when the job
begins, when its machine is taken away, when it asked to be, and, unless it said otherwise, whenever an offer changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from stash.core.errors import UserError
from stash.market.fees import Fees, LeaseRule
from stash.market.jobs import MarketJob
from stash.market.market_trace import HOUR, MarketOffer, MarketTrace, stamp
from stash.predict.draws import Array, Bools, Integers


class LookAheadError(UserError):
    """A policy asked for what was not known yet."""

    code = "look-ahead"


@dataclass(frozen=True)
class Stay:
    """Go on as it is: holding what is held, or waiting."""

    until: float = math.inf
    """When to be asked again at the latest."""
    changes: bool = True
    """Whether to be asked when an offer changes."""


@dataclass(frozen=True)
class MoveTo:
    """Save, release, and rent the offer of this number on the board."""

    to: int
    until: float = math.inf
    changes: bool = True


@dataclass(frozen=True)
class Wait:
    """Save, release, and hold nothing."""

    until: float = math.inf
    changes: bool = True


PolicyAnswer = Stay | MoveTo | Wait


class JobState(NamedTuple):
    """Where the job stands."""

    started: float
    deadline: float | None
    """A moment, not a duration."""
    samples: float
    """Of the whole training."""
    done: float
    """Samples trained so far, those included that a revocation now would destroy."""
    saved: float
    """Of them, in a finished checkpoint."""
    offer: int | None
    """That is held."""
    ready: float
    """When its boot and its fetch end, or ended."""

    @property
    def left(self) -> float:
        return self.samples - self.done


Decide = Callable[[float, JobState, "OfferBoard", Any], tuple[PolicyAnswer, Any]]


@dataclass(frozen=True)
class Policy:
    """A named rule and what it remembers at first."""

    name: str
    decide: Decide
    memory: Any = None
    text: str = ""
    """What it does, in a clause."""


@dataclass(frozen=True, eq=False)
class JobMarket:
    """One job on one market: the offers on which its speed is known. Arrays are ``[offer]``."""

    job: MarketJob
    trace: MarketTrace
    """Of these offers only."""
    fees: Fees
    excluded: Mapping[str, str] = field(default_factory=dict)
    """Instances without a forecast, and why."""

    @property
    def offers(self) -> tuple[MarketOffer, ...]:
        return self.trace.offers

    @cached_property
    def rates(self) -> Array:
        """Samples a second."""
        found = [self.job.rate(each) for each in self.offers]
        return np.array([math.nan if each is None else each.samples_per_second for each in found])

    @cached_property
    def rules(self) -> list[LeaseRule]:
        return [self.fees.lease(each) for each in self.offers]

    @cached_property
    def there(self) -> Bools:
        """``[piece]``."""
        return self.trace.there(self.job.machines)

    @cached_property
    def until(self) -> Array:
        """When each piece's offer is gone, ``[piece]``."""
        return self.trace.until(self.there)

    @cached_property
    def homes(self) -> list[tuple[str, str]]:
        return [(each.cloud, each.region) for each in self.offers]

    def start_seconds(self, resumes: bool) -> float:
        """From grant to work: boot and fetch."""
        return self.job.boot + self.job.fetch_seconds(resumes)

    def data_dollars(self, home: tuple[str, str], place: MarketOffer) -> float:
        """Of bringing the data from a cloud's region to that of ``place``."""
        gone, there = MarketOffer(*home, "", "", ""), MarketOffer(place.cloud, place.region, "", "", "")
        return self.fees.move_dollars(gone, there, self.job.data)

    def numbers(self, which: Callable[[MarketOffer], bool]) -> Integers:
        return np.flatnonzero([which(each) for each in self.offers])


def job_market(
    job: MarketJob,
    trace: MarketTrace,
    fees: Fees,
    excluded: Mapping[str, str] | None = None,
) -> JobMarket:
    """The part of ``trace`` on which the job's speed is known; raises UserError if there is none."""
    missing = dict(excluded or {})
    for offer in trace.offers:
        if job.rate(offer) is None:
            missing.setdefault(f"{offer.cloud}/{offer.instance}", "the job has no rate for it")
    known = [number for number, each in enumerate(trace.offers) if job.rate(each) is not None]
    if not known:
        raise UserError(
            f"{job.name} has no rate for any of the market's instances ({', '.join(sorted(missing)[:4])}); add them "
            "to the job's rates"
        )
    return JobMarket(job, trace.of(known), fees, missing)


class OfferBoard:
    """Every offer as it was known at ``now``; arrays are ``[offer]``. Asking for later raises LookAheadError."""

    def __init__(
        self,
        market: JobMarket,
        now: float,
        copies: Collection[tuple[str, str]] = (),
        home: tuple[str, str] | None = None,
    ) -> None:
        self.market, self.now = market, now
        self._copies, self._home = copies, home

    @property
    def offers(self) -> tuple[MarketOffer, ...]:
        return self.market.offers

    @property
    def rates(self) -> Array:
        """Samples a second."""
        return self.market.rates

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
    def per_sample(self) -> Array:
        """Dollars of a sample; infinite where an offer cannot be rented."""
        return np.where(self.there, self.costs, np.inf)

    @cached_property
    def costs(self) -> Array:
        """Dollars of a sample, whether or not the offer can be rented; NaN: not watched."""
        return np.asarray(self.prices / (HOUR * self.rates))

    @cached_property
    def next_change(self) -> float:
        """For the replay alone: when the first offer changes."""
        return float(self.market.trace.ends[self._pieces].min())

    def price(self, offer: int, at: float | None = None) -> float:
        """Dollars an hour of all machines at a moment until now; NaN: not watched."""
        when = self.now if at is None else at
        if when > self.now:
            raise LookAheadError(
                f"the price at {stamp(when)} was asked for at {stamp(self.now)}: it was not known yet"
            )
        return float(self.market.trace.price[self.market.trace.piece(offer, when)]) * self.market.job.machines

    def best(self, allowed: Sequence[int] | Integers | None = None) -> int:
        """The offer that is cheapest for a sample, of those ``allowed``; -1: none is there. Ties: the first."""
        costs = self.per_sample
        if allowed is not None:
            if not len(allowed):
                return -1
            best = int(np.asarray(allowed)[costs[allowed].argmin()])
        else:
            best = int(costs.argmin())
        return best if np.isfinite(costs[best]) else -1

    def move_cost(self, gone: int, to: int) -> float:
        """Dollars of a move: save · p_old + (boot + fetch) · p_new + egress, at today's prices.

        Egress is that of the checkpoint, and of the data where their region has no copy yet.
        """
        job = self.market.job
        save, start = job.save_seconds, self.market.start_seconds(resumes=True)
        egress = self.market.fees.move_dollars(self.offers[gone], self.offers[to], job.checkpoint)
        place = self.offers[to]
        if self._home is not None and (place.cloud, place.region) not in self._copies:
            egress += self.market.data_dollars(self._home, place)
        old = 0.0 if math.isnan(self.prices[gone]) else float(self.prices[gone])
        return (save * old + start * float(self.prices[to])) / HOUR + egress
