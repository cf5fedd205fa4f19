"""What is asked for an hour, with the spread of its age; and probabilities from draws.

A list price is exact for ``OLD_DAYS``; how far it has moved since is unknown. How spot prices move was not recorded:
one that is older than ``RECENT_DAYS``, or undated, may be anything from what it was to what it costs on demand.
"""

from __future__ import annotations

import math
from datetime import date

import numpy as np

from stash.catalog.facts import Offer, price_age
from stash.catalog.own import ON_PREMISE
from stash.core.intervals import Interval
from stash.plan.records import HourlyPrice, PaidAs
from stash.predict.draws import Array

RECENT_DAYS = 30
"""Days for which a price is taken for today's without being asked."""


def is_recent(as_of: str | None, now: date) -> bool:
    """Whether a price of that date is one of these days."""
    asked = price_age(as_of, now)
    return asked is not None and asked.most <= RECENT_DAYS


def hourly_price(offer: Offer, now: date, on_demand: float | None = None) -> HourlyPrice | None:
    """The offer's price on the day ``now``, with its spread, date and source.

    ``None`` of an old price on spot that no price ``on_demand`` bounds.
    """
    value, paid, asked = offer.dollars_per_hour, payment_kind(offer), price_age(offer.as_of, now)
    # Who writes a price into his own file without a date has it in a contract.
    is_agreed = paid in ("own", "reserved") or (paid != "spot" and asked is None and offer.own)
    low = high = None
    moved = ""
    if paid == "spot" and not offer.own and not is_recent(offer.as_of, now):
        if on_demand is None:
            return None
        low, high = min(value, on_demand), on_demand
        value, moved = (low + high) / 2, f"anything from ${value:,.4g} to what it costs on demand"
    elif paid == "spot":
        moved = "how far spot prices move is in no catalog"
    elif is_agreed or (asked is not None and not asked.is_old):
        low = high = value
    else:
        moved = "how far it has moved since is not known: renew it with `stash catalog refresh`"
    return HourlyPrice(
        dollars_per_hour=Interval(value=value, low=low, high=high),
        paid_as=paid,
        region=offer.region,
        as_of=offer.as_of,
        source=offer.source,
        moved=moved,
    )


def payment_kind(offer: Offer) -> PaidAs:
    """How the machine is paid for: one's own where it stands on one's premises."""
    if offer.kind == "reserved":
        return "reserved"
    if offer.instance.cloud == ON_PREMISE:
        return "own"
    return "spot" if offer.kind == "spot" else "on-demand"


def is_contract_price(price: HourlyPrice) -> bool:
    """Whether it holds whatever lists say: of one's own machine, reserved, or written down without a date."""
    in_contract = (
        price.as_of is None and price.dollars_per_hour.low is not None and price.paid_as != "spot"
    )
    return price.paid_as in ("own", "reserved") or in_contract


def available_count(offer: Offer) -> int | None:
    """How many machines of it there are, where the user's file says so; ``None`` if unstated."""
    return offer.instance.reserved_count if offer.kind == "reserved" else offer.instance.owned_count


# Probabilities from draws


def kept_share(drawn: Array, limit: float | None) -> float | None:
    """The share of draws that do not exceed ``limit``; ``None`` without one."""
    return None if limit is None else float(np.count_nonzero(drawn <= limit) / len(drawn))


def quantile_at(drawn: Array, confidence: float) -> Array:
    """The least limit that is kept with this probability: ``kept(drawn, limit) >= confidence`` from here on.

    Of draws along the last axis, which goes.
    """
    needed = math.ceil(confidence * drawn.shape[-1] - 1e-9)
    least: Array = np.partition(drawn, needed - 1, axis=-1)[..., needed - 1]
    return least


def is_apart(difference: Array, outside: float = 0.025) -> bool:
    """Whether the middle of the draws, all but ``outside`` of them at either end, lies on one side of zero."""
    beyond = int(outside * len(difference))
    ordered = np.sort(difference)
    return bool(ordered[beyond] > 0 or ordered[-1 - beyond] < 0)
