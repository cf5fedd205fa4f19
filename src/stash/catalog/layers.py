"""Merges the layers of the catalog: what Stash ships, the refreshed snapshot, the user's own file.

Prices: the user's file wins over the snapshot, which wins over what is shipped; a shipped on-demand price that
the snapshot renewed stays as history. Hardware facts: the user's file wins over what is shipped, and the snapshot
only fills in what is still unknown, because published price lists round memory sizes and count dies their own way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from stash.catalog import facts, own, shipped, snapshot
from stash.catalog.facts import GpuFacts, Instance, Offer, Price, PriceKind, slice_gpu
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
    file = facts.own_file() if instances is None else instances
    mine = own.load_own_file(file) if instances is not None or file.exists() else None
    return merge(snapshot.load_snapshot(facts.snapshot_file()), mine)


def merge(fresh: Snapshot | None, mine: OwnFile | None) -> Catalog:
    """The catalog of what is shipped, a snapshot if there is one, and the user's file if there is one."""
    known = {(instance.cloud, instance.name): instance for instance in shipped.instances()}
    gpus = {gpu.name: gpu for gpu in shipped.gpus()}
    parts = fresh.parts if fresh else ()
    for part in parts:
        _fill_in(known, part.instances, gpus)
    if mine:
        gpus |= {gpu.name: gpu for gpu in mine.gpus}
        instances, own_prices = mine.place_entries(known)
        for key, instance in instances.items():
            known[key] = _override(known.get(key), instance)
    prices: Sequence[Price] = shipped.prices()
    if parts:
        prices = _renew_prices(prices, [price for part in parts for price in part.prices])
    if mine:
        # where the user names a price of a type, those of the other layers go
        named = {(price.cloud, price.instance, price.kind) for price in own_prices}
        prices = [
            *own_prices,
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
            exact = {"gpu": instance.gpu_model} if instance.gpu_model in gpus else {}
            known[key] = instance.model_copy(update=exact)
            continue
        there = instance.model_dump(include=set(fields), exclude_none=True)
        new = {name: there[name] for name in fields if name in there and getattr(old, name) is None}
        if new and old.gpu_count != 0:
            source = f"{old.source}; {instance.source}: {', '.join(new)}"
            known[key] = old.model_copy(update={**new, "source": source})


_ABOUT = {"as_of", "source", "layer"}
_NO_FACTS = {*_ABOUT, "cloud", "name", "notes", "owned_count", "reserved_count"}
"""Fields that tell nothing of the hardware."""


def _override(old: Instance | None, mine: Instance) -> Instance:
    """``old`` with what the user's file says; its source and date stay where that is nothing of the hardware."""
    if old is None:
        return mine
    given = mine.model_fields_set
    given = given if given - _NO_FACTS else given - _ABOUT
    return old.model_copy(update={name: getattr(mine, name) for name in given})


def _renew_prices(lower: Iterable[Price], upper: Sequence[Price]) -> list[Price]:
    """``lower`` beneath ``upper``; an on-demand price that was renewed becomes prior, other renewed ones go.

    One that did not change tells how long it has held, so it goes only where its date, or its region, is unknown.
    """
    newest: dict[tuple[str, str, PriceKind], list[Price]] = {}
    for price in upper:
        newest.setdefault((price.cloud, price.instance, price.kind), []).append(price)
    kept: list[Price] = []
    for price in lower:
        is_current = price.kind != "prior"
        alike = newest.get((price.cloud, price.instance, price.kind), []) if is_current else []
        newer = [each for each in alike if price.region in (None, each.region)]
        dated = price.region is not None and price.as_of is not None
        others = [
            each
            for each in newer
            if abs(each.dollars_per_hour / price.dollars_per_hour - 1) > _SAME
            or (dated and each.as_of != price.as_of)
        ]
        if not newer:
            kept.append(price)
        elif price.kind == "on-demand" and len(others) == len(newer):
            kept.append(price._replace(kind="prior"))
    return [*upper, *kept]


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
