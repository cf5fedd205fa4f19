"""Facts about GPUs, instances and their prices: dated data with sources, and a pure query over it.

    from stash.keep import catalog

    catalog.query(catalog.OfferFilter(gpu="V100", max_dollars_per_hour=10))
    catalog.instance("p3.8xlarge").network_bytes_per_second

The functions here ask the merged catalog, read once per process: what Stash ships, a refreshed snapshot, and the
user's own file. ``load`` reads it again or from other files. Each name is loaded on first use. Never imports torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stash.keep.catalog.facts import GpuFacts as GpuFacts
    from stash.keep.catalog.facts import Instance as Instance
    from stash.keep.catalog.facts import Offer as Offer
    from stash.keep.catalog.facts import PriceKind as PriceKind
    from stash.keep.catalog.filter import OfferFilter as OfferFilter
    from stash.keep.catalog.layers import load as load
    from stash.keep.catalog.table import Answer as Answer
    from stash.keep.catalog.table import Catalog as Catalog
    from stash.keep.catalog.usual import gpu as gpu
    from stash.keep.catalog.usual import instance as instance
    from stash.keep.catalog.usual import query as query
    from stash.keep.catalog.usual import search as search

_HOMES = {
    "Answer": "stash.keep.catalog.table",
    "Catalog": "stash.keep.catalog.table",
    "GpuFacts": "stash.keep.catalog.facts",
    "Instance": "stash.keep.catalog.facts",
    "Offer": "stash.keep.catalog.facts",
    "OfferFilter": "stash.keep.catalog.filter",
    "PriceKind": "stash.keep.catalog.facts",
    "gpu": "stash.keep.catalog.usual",
    "instance": "stash.keep.catalog.usual",
    "load": "stash.keep.catalog.layers",
    "query": "stash.keep.catalog.usual",
    "search": "stash.keep.catalog.usual",
}
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


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
