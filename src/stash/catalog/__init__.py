"""Facts about GPUs, instances and their prices: dated data with sources, and a pure query over it.

    from stash import catalog

    catalog.query(catalog.OfferFilter(gpu="V100", max_dollars_per_hour=10))
    catalog.instance("p3.8xlarge").network_bytes_per_second

The functions here ask the merged catalog, read once per process: what Stash ships, a refreshed snapshot, and the
user's own file. ``load`` reads it again or from other files. Each name is loaded on first use. Never imports torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stash.core.front import make_lazy_access

if TYPE_CHECKING:
    from stash.catalog.facts import GpuFacts, Instance, Offer, PriceKind
    from stash.catalog.layers import gpu, instance, load, query, search
    from stash.catalog.offers import Answer, Catalog, OfferFilter

__getattr__, __dir__ = make_lazy_access(
    __name__,
    {
        "Answer": "stash.catalog.offers",
        "Catalog": "stash.catalog.offers",
        "GpuFacts": "stash.catalog.facts",
        "Instance": "stash.catalog.facts",
        "Offer": "stash.catalog.facts",
        "OfferFilter": "stash.catalog.offers",
        "PriceKind": "stash.catalog.facts",
        "gpu": "stash.catalog.layers",
        "instance": "stash.catalog.layers",
        "load": "stash.catalog.layers",
        "query": "stash.catalog.layers",
        "search": "stash.catalog.layers",
    },
)
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
