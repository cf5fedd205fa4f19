"""The merged catalog as commands ask it, read once per process: what Stash ships, a snapshot, the user's own file."""

from __future__ import annotations

from functools import lru_cache

from stash.catalog.facts import GpuFacts, Instance, Offer
from stash.catalog.layers import load
from stash.catalog.offers import Answer, Catalog, OfferFilter


@lru_cache(maxsize=1)
def _usual() -> Catalog:
    return load()


def query(wish: OfferFilter | None = None) -> tuple[Offer, ...]:
    """The offers that meet every wish, cheapest first; an offer whose fact is unknown never does. UserError."""
    return _usual().query(wish)


def search(wish: OfferFilter | None = None) -> Answer:
    """Like ``query``, with the number of offers left out because a fact is unknown, by fact."""
    return _usual().search(wish)


def gpu(name: str) -> GpuFacts:
    """One GPU by variant, by model if that has one variant, or by the driver's name; UserError names the nearest."""
    return _usual().gpu(name)


def instance(name: str) -> Instance:
    """One instance by name, with or without its cloud (``aws/p3.8xlarge``); UserError names the nearest."""
    return _usual().instance(name)
