"""What clouds charge besides the hour: how leases are rounded, when they are free, and what moved data cost.

The dated facts are the catalog's tariffs. What no source says is not charged, and named by ``not_counted``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stash.catalog.reference import Tariff, TariffFact, tariffs
from stash.core.formatting import listed
from stash.market.market_trace import MarketOffer

GB = 1e9
_SAME = 1e-3
"""Seconds that are no difference: moments since 1970 have few digits behind the point."""


@dataclass(frozen=True)
class LeaseRule:
    """How one offer's lease is billed; seconds."""

    increment: float = 0.0
    """Rounded up to; 0: to the moment."""
    least: float = 0.0
    revoked_free: float = 0.0
    """A lease that is revoked no later costs nothing."""

    def billed(self, seconds: float, revoked: bool) -> float:
        """How many seconds of a lease are paid."""
        if seconds <= 0 or (revoked and seconds <= self.revoked_free + _SAME):
            return 0.0
        paid = max(seconds, self.least)
        if self.increment:
            paid = math.ceil(paid / self.increment - 1e-9) * self.increment
        return paid


@dataclass(frozen=True)
class Fees:
    """All clouds' rules."""

    by_cloud: Mapping[str, Tariff]

    def lease(self, offer: MarketOffer) -> LeaseRule:
        tariff = self.by_cloud.get(offer.cloud)
        if tariff is None:
            return LeaseRule()
        free = _value(tariff.revoked_free_seconds) if offer.kind == "spot" else 0.0
        return LeaseRule(_value(tariff.billed_by_seconds), _value(tariff.least_seconds), free)

    def move_dollars(self, gone: MarketOffer, to: MarketOffer, amount: float) -> float:
        """Of so many bytes from where ``gone`` is to where ``to`` is."""
        if amount <= 0 or (gone.cloud, gone.region, gone.zone) == (to.cloud, to.region, to.zone):
            return 0.0
        tariff = self.by_cloud.get(gone.cloud)
        if tariff is None:
            return 0.0
        if gone.cloud != to.cloud:
            fact = tariff.egress_dollars_per_gb
        elif not gone.region:
            return 0.0  # anywhere in the cloud
        elif gone.region != to.region:
            fact = tariff.region_dollars_per_gb
        else:
            fact = tariff.zone_dollars_per_gb
        return _value(fact) * amount / GB


def published_fees() -> Fees:
    """The tariffs that come with Stash."""
    return Fees(tariffs())


def _value(fact: TariffFact | None) -> float:
    return 0.0 if fact is None else fact.value


def not_counted(fees: Fees, offers: Iterable[MarketOffer]) -> list[str]:
    """What bills lack, in sentences."""
    clouds = sorted({each.cloud for each in offers})
    facts = (
        ("how a lease is rounded", "billed_by_seconds"),
        ("data between zones", "zone_dollars_per_gb"),
        ("data between regions", "region_dollars_per_gb"),
        ("data that leave", "egress_dollars_per_gb"),
    )
    found = []
    for what, name in facts:
        lack = [each for each in clouds if each not in fees.by_cloud or getattr(fees.by_cloud[each], name) is None]
        if lack:
            found.append(f"{what} of {listed(lack)}")
    return [*found, "storage of copies of the data"]
