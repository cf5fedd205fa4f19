"""What moved data cost. The dated facts are the catalog's tariffs; what no source says is not charged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stash.api import Tariff
from stash.market.market_trace import MarketOffer

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
