"""Facts about GPUs, instances and their prices: dated data with sources, and a pure query over it.

    from stash.keep import catalog

    catalog.query(catalog.OfferFilter(gpu="V100", max_dollars_per_hour=10))
    catalog.instance("p3.8xlarge").network_bytes_per_second

The functions here ask the merged catalog, read once per process: what Stash ships, a refreshed snapshot, and the
user's own file. ``load`` reads it anew or from other files. Never imports torch.
"""

from __future__ import annotations

from functools import lru_cache

from stash.keep.catalog.facts import GpuFacts, Instance, Offer, PriceKind
from stash.keep.catalog.filter import OfferFilter
from stash.keep.catalog.layers import load
from stash.keep.catalog.table import Answer, Catalog

__all__ = [
    "Answer",
    "Catalog",
    "GpuFacts",
    "Instance",
    "Offer",
    "OfferFilter",
    "PriceKind",
    "gpu",
    "instance",
    "load",
    "query",
    "search",
]


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
