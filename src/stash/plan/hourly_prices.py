"""What is asked for an hour, with the spread of its age; and probabilities from draws.

A list price is exact on its day. Later it may have changed: how often, and by how much, is seen from prices of the
same cloud that the catalog holds of two dates. A price of age a has changed with probability p = 1 − exp(−a · rate),
by one of the changes seen, each as likely; its 95 % interval is that mixture's. Where too few were seen twice, an old
price's spread is unknown. How spot prices move was not recorded: one that is older than ``RECENT_DAYS``, or undated,
may be anything from what it was to what the machine costs on demand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise

import numpy as np

from stash.catalog.facts import Offer, age
from stash.catalog.own import ON_PREMISE
from stash.core.intervals import Interval
from stash.plan.records import HourlyPrice, PaidAs
from stash.predict.draws import OUTSIDE, Array

_MIN_PAIRS = 10
"""Prices seen twice, below which nothing is concluded about the others."""
_SAME = 0.005
"""Prices this close (as a fraction) are the same price, rounded differently."""
_YEAR = 365.25
RECENT_DAYS = 30
"""Days for which a price is taken for today's without being asked."""
EXACT = (1.0, 1.0)
"""Ends of the interval of a price that is known, by that price."""


@dataclass(frozen=True)
class PriceMoves:
    """How on-demand prices of one cloud moved, as far as the catalog holds them of two dates."""

    pairs: int
    years: float
    """Between their two dates, all pairs together."""
    factors: tuple[float, ...]
    """New price by old price, of those that changed: the smallest first."""

    @property
    def as_text(self) -> str:
        """What was seen, in words."""
        seen = f"of {self.pairs} prices of this cloud that are known of two dates"
        if not self.factors:
            return f"{seen} none changed"
        least, most = self.factors[0] - 1, self.factors[-1] - 1
        by = f"{least:+.0%}" if f"{least:+.0%}" == f"{most:+.0%}" else f"{least:+.0%} to {most:+.0%}"
        return f"{seen}, {len(self.factors)} changed by {by}"

    def ends(self, days: float) -> tuple[float, float] | None:
        """Factors between which a price of that age lies with 95 %; ``None`` if too little was seen to say."""
        if self.pairs < _MIN_PAIRS or self.years <= 0:
            return None
        changed = 1 - math.exp(-days / _YEAR * len(self.factors) / self.years)
        return self._quantile(changed, OUTSIDE), self._quantile(changed, 1 - OUTSIDE)

    def _quantile(self, changed: float, at: float) -> float:
        """Of the mixture: 1 with probability 1 − ``changed``, else one of the factors."""
        each = changed / max(1, len(self.factors))
        weights = sorted([(1.0, 1 - changed), *((factor, each) for factor in self.factors)])
        below = 0.0
        for factor, weight in weights:
            below += weight
            if below >= at:
                return factor
        return weights[-1][0]


def price_moves(prior: Sequence[Offer], current: Sequence[Offer]) -> Mapping[str, PriceMoves]:
    """Price moves by cloud, from each prior price that has a current on-demand one of a later date to the next."""
    today = {
        (offer.instance.cloud, offer.instance.name, offer.region): offer
        for offer in current
        if prior and offer.kind == "on-demand"
    }
    asked: dict[tuple[str, str, str | None], list[tuple[float, float]]] = {}
    for before in prior:
        key = (before.instance.cloud, before.instance.name, before.region)
        after = today.get(key)
        days = None if after is None else _days_between(before, after)
        if after is not None and days is not None and days > 0:
            asked.setdefault(key, [(0.0, after.dollars_per_hour)]).append((days, before.dollars_per_hour))
    seen: dict[str, list[tuple[float, float]]] = {}
    for (cloud, *_), prices in asked.items():
        for (until, new), (days, old) in pairwise(sorted(prices)):
            if days > until:
                seen.setdefault(cloud, []).append(((days - until) / _YEAR, new / old))
    return {
        cloud: PriceMoves(
            pairs=len(pairs),
            years=math.fsum(years for years, _ in pairs),
            factors=tuple(sorted(factor for _, factor in pairs if abs(factor - 1) > _SAME)),
        )
        for cloud, pairs in seen.items()
    }


def _days_between(before: Offer, after: Offer) -> float | None:
    """Between the middles of their dates; ``None`` if one is undated."""
    ages = [age(offer.as_of, date.max) for offer in (before, after)]
    if ages[0] is None or ages[1] is None:
        return None
    return (ages[0].least + ages[0].most - ages[1].least - ages[1].most) / 2


def is_recent(as_of: str | None, now: date) -> bool:
    """Whether a price of that date is one of these days."""
    asked = age(as_of, now)
    return asked is not None and asked.most <= RECENT_DAYS


def hourly_price(
    offer: Offer, moves: Mapping[str, PriceMoves], now: date, on_demand: float | None = None
) -> HourlyPrice | None:
    """The offer's price on the day ``now``, with its spread, date and source.

    ``None`` of an old price on spot that no price ``on_demand`` bounds.
    """
    value, (factors, moved) = offer.dollars_per_hour, _spread(offer, moves, now)
    # Where most have changed, the middle 95 % may lie on one side of the price: it is itself one that is possible.
    ends = {} if factors is None else {"low": value * min(factors[0], 1), "high": value * max(factors[1], 1)}
    if paid_as(offer) == "spot" and not offer.own and not is_recent(offer.as_of, now):
        if on_demand is None:
            return None
        ends = {"low": min(value, on_demand), "high": on_demand}
        value, moved = (ends["low"] + ends["high"]) / 2, f"anything from ${value:,.4g} to what it costs on demand"
    return HourlyPrice(
        dollars_per_hour=Interval(value=value, **ends),
        paid_as=paid_as(offer),
        region=offer.region,
        as_of=offer.as_of,
        source=offer.source,
        moved=moved,
    )


def paid_as(offer: Offer) -> PaidAs:
    """How the machine is paid for: one's own where it stands on one's premises."""
    if offer.kind == "reserved":
        return "reserved"
    if offer.instance.cloud == ON_PREMISE:
        return "own"
    return "spot" if offer.kind == "spot" else "on-demand"


def agreed(price: HourlyPrice) -> bool:
    """Whether it holds whatever lists say: of one's own machine, reserved, or written down without a date."""
    in_contract = price.as_of is None and price.dollars_per_hour.low is not None and price.paid_as != "spot"
    return price.paid_as in ("own", "reserved") or in_contract


def available(offer: Offer) -> int | None:
    """How many machines of it there are, where the user's file says so; ``None`` if unstated."""
    return offer.instance.reserved_count if offer.kind == "reserved" else offer.instance.owned_count


def _spread(offer: Offer, moves: Mapping[str, PriceMoves], now: date) -> tuple[tuple[float, float] | None, str]:
    """Ends of the interval by the price itself, ``None`` if unknown, and in words how they are known."""
    paid, asked = paid_as(offer), age(offer.as_of, now)
    if paid == "spot":
        return None, "how far spot prices move is in no catalog"
    # Who writes a price into his own file without a date has it in a contract.
    if paid in ("own", "reserved") or (asked is None and offer.own):
        return EXACT, ""
    if asked is not None and not asked.is_old:
        return EXACT, ""
    known = moves.get(offer.instance.cloud)
    ends = None if known is None or asked is None else known.ends(asked.most)
    if known is None or ends is None:
        return None, "how far it has moved since is not known: renew it with `stash catalog refresh`"
    return ends, f"since when it may have moved: {known.as_text}"


# Probabilities from draws


def kept(drawn: Array, limit: float | None) -> float | None:
    """The share of draws that do not exceed ``limit``; ``None`` without one."""
    return None if limit is None else float(np.count_nonzero(drawn <= limit) / len(drawn))


def quantile_at(drawn: Array, confidence: float) -> Array:
    """The least limit that is kept with this probability: ``kept(drawn, limit) >= confidence`` from here on.

    Of draws along the last axis, which goes.
    """
    needed = math.ceil(confidence * drawn.shape[-1] - 1e-9)
    least: Array = np.partition(drawn, needed - 1, axis=-1)[..., needed - 1]
    return least


def apart(difference: Array, outside: float = 0.025) -> bool:
    """Whether the middle of the draws, all but ``outside`` of them at either end, lies on one side of zero."""
    beyond = int(outside * len(difference))
    ordered = np.sort(difference)
    return bool(ordered[beyond] > 0 or ordered[-1 - beyond] < 0)
