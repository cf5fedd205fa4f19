"""Merges the layers of the catalog: what Stash ships, the refreshed snapshot, the user's own file.

Prices: the user's file wins over the snapshot, which wins over what is shipped; a shipped on-demand price that
the snapshot renewed stays as history. Hardware facts: the user's file wins over what is shipped, and the snapshot
only fills in what is still unknown, because published price lists round memory sizes and count dies their own way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from stash.catalog import facts, own, shipped, snapshot
from stash.catalog.facts import GpuFacts, Instance, Offer, Price, slice_gpu
from stash.catalog.links import fill_links
from stash.catalog.offers import Answer, Catalog, OfferFilter
from stash.catalog.own import OwnFile
from stash.catalog.snapshot import Snapshot

Key = tuple[str, str]
_SAME = 0.005
"""Prices this close (as a fraction) are the same price, rounded differently."""


def load(instances: Path | None = None) -> Catalog:
    """The merged catalog.

    ``instances`` is a file of the user's own (default: ``~/.config/stash/instances.yaml`` if it exists). Raises
    UserError when it or the snapshot is damaged, or when it was named and is not there.
    """
    chosen = (
        own.load_own_file(instances)
        if instances is not None
        else own.read_if_there(facts.own_file())
    )
    return merge(snapshot.load_snapshot(facts.snapshot_file()), chosen)


def merge(fresh: Snapshot | None, mine: OwnFile | None) -> Catalog:
    """The catalog of what is shipped, a snapshot if there is one, and the user's file if there is one."""
    known = {(instance.cloud, instance.name): instance for instance in shipped.instances()}
    gpus = {gpu.name: gpu for gpu in shipped.gpus()}
    parts = fresh.parts if fresh else ()
    for part in parts:
        _fill_in(known, part.instances, gpus)
    if mine:
        gpus |= {gpu.name: gpu for gpu in mine.gpus}
        placed = mine.place_entries(known)
        for key, instance in placed.instances.items():
            known[key] = _override(known.get(key), instance)
    prices: Sequence[Price] = shipped.prices()
    if parts:
        prices = _renew_prices(prices, [price for part in parts for price in part.prices])
    if mine:
        # where the user names a price of a type, those of the other layers go
        named = {(price.cloud, price.instance, price.kind) for price in placed.prices}
        prices = [
            *placed.prices,
            *(price for price in prices if (price.cloud, price.instance, price.kind) not in named),
        ]
    whole = [
        fill_links(slice_gpu(instance, gpus.values()), gpus.values()) for instance in known.values()
    ]
    lines = [f"shipped facts of {shipped.DATE}"]
    if fresh:
        lines.append(f"snapshot of {fresh.created[:10]}")
    if mine:
        lines.append(f"own file {mine.path}")
    return Catalog(tuple(gpus.values()), tuple(whole), tuple(prices), tuple(lines))


def _fill_in(
    known: dict[Key, Instance], more: Iterable[Instance], gpus: Mapping[str, GpuFacts]
) -> None:
    fields = ("gpu_model", "gpu_count", "gpu_memory_bytes", "vcpus", "memory_bytes")
    for instance in more:
        key = (instance.cloud, instance.name)
        old = known.get(key)
        if old is None:
            # a model of one variant: the list's name for it is exact
            known[key] = (
                instance.model_copy(update={"gpu": instance.gpu_model})
                if instance.gpu_model in gpus
                else instance
            )
            continue
        new = {name: getattr(instance, name) for name in fields if getattr(old, name) is None}
        new = {name: value for name, value in new.items() if value is not None}
        if new and old.gpu_count != 0:
            known[key] = old.model_copy(
                update={**new, "source": f"{old.source}; {instance.source}: {', '.join(new)}"}
            )


_ABOUT = {"as_of", "source", "layer"}
_NO_FACTS = {*_ABOUT, "cloud", "name", "notes", "owned_count", "reserved_count"}
"""Fields that tell nothing of the hardware."""


def _override(old: Instance | None, mine: Instance) -> Instance:
    """``old`` with what the user's file says; its source and date stay where that is nothing of the hardware."""
    if old is None:
        return mine
    given = (
        mine.model_fields_set
        if mine.model_fields_set - _NO_FACTS
        else mine.model_fields_set - _ABOUT
    )
    return old.model_copy(update={name: getattr(mine, name) for name in given})


def _renew_prices(lower: Iterable[Price], upper: Sequence[Price]) -> list[Price]:
    """``lower`` beneath ``upper``; a hidden on-demand price becomes prior, other hidden ones go.

    One that did not change tells how long it has held, so it goes only where its date, or its region, is unknown.
    """
    is_hidden = _hiding(upper)
    on_demand: dict[Key, list[Price]] = {}
    for price in upper:
        if price.kind == "on-demand":
            on_demand.setdefault((price.cloud, price.instance), []).append(price)
    kept: list[Price] = []
    for price in lower:
        if not is_hidden(price):
            kept.append(price)
        elif price.kind == "on-demand":
            newer = on_demand[price.cloud, price.instance]
            same = [each for each in newer if price.region is None or each.region == price.region]
            if all(_replaces(each, price) for each in same):
                kept.append(price._replace(kind="prior"))
    return [*upper, *kept]


def _replaces(newer: Price, price: Price) -> bool:
    """Whether ``price`` is another than ``newer``, or the same one of an earlier day."""
    if abs(newer.dollars_per_hour / price.dollars_per_hour - 1) > _SAME:
        return True
    return price.region is not None and price.as_of is not None and newer.as_of != price.as_of


def _hiding(upper: Iterable[Price]) -> Callable[[Price], bool]:
    """Whether a current price's instance, kind and region (any, if it is unknown) are those of one of ``upper``."""
    there = {(price.cloud, price.instance, price.kind, price.region) for price in upper}
    anywhere = {(cloud, instance, kind) for cloud, instance, kind, _ in there}

    def is_hidden(price: Price) -> bool:
        place = price.cloud, price.instance, price.kind
        if price.kind == "prior":
            return False
        return place in anywhere if price.region is None else (*place, price.region) in there

    return is_hidden


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
