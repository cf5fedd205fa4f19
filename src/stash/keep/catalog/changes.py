"""What changed between two catalogs: prices, types that came or went.

Compares current offers only, by instance, region and kind. Knows nothing of where either catalog came from.
"""

from __future__ import annotations

from dataclasses import dataclass

from stash.keep.catalog.facts import Instance, Offer
from stash.keep.catalog.filter import OfferFilter
from stash.keep.catalog.table import Catalog

_SAME = 0.001
"""Prices this close (as a fraction) have not changed."""


@dataclass(frozen=True)
class PriceChange:
    """One offer at its old and its new price."""

    before: Offer
    after: Offer

    @property
    def fraction(self) -> float:
        """0.1 for a rise by 10 %."""
        return self.after.dollars_per_hour / self.before.dollars_per_hour - 1


@dataclass(frozen=True)
class Changes:
    """Everything that differs, the largest price changes first, on demand before spot."""

    prices: tuple[PriceChange, ...]
    came: tuple[Instance, ...]
    went: tuple[Instance, ...]
    new_offers: int
    """Of types that both catalogs know."""
    gone_offers: int

    def __bool__(self) -> bool:
        return bool(self.prices or self.came or self.went or self.new_offers or self.gone_offers)


def compare(before: Catalog, after: Catalog) -> Changes:
    """What is different in ``after``."""
    old, new = _offers(before), _offers(after)
    prices = [PriceChange(old[key], new[key]) for key in old.keys() & new.keys()]
    changed = [change for change in prices if abs(change.fraction) > _SAME]
    changed.sort(key=lambda change: (change.after.kind, -abs(change.fraction), *_name(change.after)))
    were, are = _types(before), _types(after)
    came, went = (
        {key: types[key] for key in types if key not in others} for types, others in ((are, were), (were, are))
    )
    return Changes(
        tuple(changed),
        tuple(came.values()),
        tuple(went.values()),
        sum(key not in old and key[:2] not in came for key in new),
        sum(key not in new and key[:2] not in went for key in old),
    )


def _offers(catalog: Catalog) -> dict[tuple[str, str, str | None, str], Offer]:
    wanted = catalog.query(OfferFilter(kinds=("on-demand", "spot")))
    return {(offer.instance.cloud, offer.instance.name, offer.region, offer.kind): offer for offer in wanted}


def _types(catalog: Catalog) -> dict[tuple[str, str], Instance]:
    return {(item.cloud, item.name): item for item in catalog.instances}


def _name(offer: Offer) -> tuple[str, str]:
    return offer.instance.name, offer.region or ""
