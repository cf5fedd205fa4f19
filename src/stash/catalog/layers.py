"""Merges the layers of the catalog: what Stash ships, the refreshed snapshot, the user's own file.

Prices: the user's file wins over the snapshot, which wins over what is shipped; a shipped on-demand price that
the snapshot renewed stays as history. Hardware facts: the user's file wins over what is shipped, and the snapshot
only fills in what is still unknown, because published price lists round memory sizes and count dies their own way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from stash.catalog import facts, own, shipped, snapshot
from stash.catalog.facts import GpuFacts, Instance, Offer, sliced
from stash.catalog.offers import Answer, Catalog, Columns, Mask, OfferFilter
from stash.catalog.own import OwnFile
from stash.catalog.snapshot import Part, Snapshot

Key = tuple[str, str]
_SAME = 0.005
"""Prices this close (as a fraction) are the same price, rounded differently."""


def load(instances: Path | None = None, snapshot_path: Path | None = None) -> Catalog:
    """The merged catalog.

    ``instances`` is a file of the user's own (default: ``~/.config/stash/instances.yaml`` if it exists);
    ``snapshot_path`` replaces the snapshot's usual place. Raises UserError when either is damaged, or when
    ``instances`` was named and is not there.
    """
    chosen = own.read(instances) if instances is not None else own.read_if_there(facts.own_file())
    return merge(snapshot.read(snapshot_path or facts.snapshot_file()), chosen)


def merge(fresh: Snapshot | None, mine: OwnFile | None) -> Catalog:
    """The catalog of what is shipped, a snapshot if there is one, and the user's file if there is one."""
    known = {(instance.cloud, instance.name): instance for instance in shipped.instances()}
    gpus = {gpu.name: gpu for gpu in shipped.gpus()}
    parts = fresh.parts if fresh else ()
    for part in parts:
        _fill_in(known, part.instances, gpus)
    if mine:
        gpus |= {gpu.name: gpu for gpu in mine.gpus}
        placed = mine.placed(known)
        for key, instance in placed.instances.items():
            known[key] = _override(known.get(key), instance)
    index = {key: number for number, key in enumerate(known)}
    columns = Columns.of(shipped.prices(), index)
    if parts:
        columns = _renewed(columns, _joined_parts(parts, index))
    if mine:
        columns = _overridden(columns, Columns.of(placed.prices, index))
    whole = [sliced(instance, gpus.values()) for instance in known.values()]
    return Catalog(tuple(gpus.values()), tuple(whole), columns, _sentences(fresh, mine))


def _sentences(fresh: Snapshot | None, mine: OwnFile | None) -> tuple[str, ...]:
    lines = [f"shipped facts of {shipped.DATE}"]
    if fresh:
        lines.append(f"snapshot of {fresh.created[:10]}")
    if mine:
        lines.append(f"own file {mine.path}")
    return tuple(lines)


def _fill_in(known: dict[Key, Instance], more: Iterable[Instance], gpus: Mapping[str, GpuFacts]) -> None:
    fields = ("gpu_model", "gpu_count", "gpu_memory_bytes", "vcpus", "memory_bytes")
    for instance in more:
        key = (instance.cloud, instance.name)
        old = known.get(key)
        if old is None:
            known[key] = (
                instance.model_copy(update={"gpu": instance.gpu_model}) if instance.gpu_model in gpus else instance
            )  # a model of one variant: the list's name for it is exact
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
    given = mine.model_fields_set if mine.model_fields_set - _NO_FACTS else mine.model_fields_set - _ABOUT
    return old.model_copy(update={name: getattr(mine, name) for name in given})


def _joined_parts(parts: Sequence[Part], index: Mapping[Key, int]) -> Columns:
    """All parts as one, a row of an earlier part hiding the same offer of a later one."""
    joined: Columns | None = None
    for part in parts:
        numbers = np.array([index[item.cloud, item.name] for item in part.instances], dtype=np.int32)
        columns = replace(part.columns, instance=numbers[part.columns.instance])
        joined = columns if joined is None else joined.above(columns.keep(~_hidden(columns, joined)))
    assert joined is not None
    return joined


def _renewed(lower: Columns, upper: Columns) -> Columns:
    """``lower`` beneath ``upper``; a hidden on-demand price becomes prior, other hidden rows go.

    One that did not change tells how long it has held, so it goes only where its date, or its region, is unknown.
    """
    hidden = _hidden(lower, upper)
    past = hidden & (lower.kind == "on-demand")
    asked = upper.keep(upper.kind == "on-demand")
    for row in np.flatnonzero(past):
        same = asked.instance == lower.instance[row]
        if lower.region[row] is not None:
            same &= asked.region == lower.region[row]
        changed = np.abs(asked.price[same] / lower.price[row] - 1) > _SAME
        dated = None not in (lower.region[row], lower.as_of[row])
        past[row] = (changed | (dated & (asked.as_of[same] != lower.as_of[row]))).all()
    kind = lower.kind.copy()
    kind[past] = "prior"
    return upper.above(replace(lower, kind=kind).keep(~hidden | past))


def _overridden(lower: Columns, mine: Columns) -> Columns:
    """``lower`` without any price of an (instance, kind) for which the user names a price, and the user's."""
    named = {(instance, kind) for instance, kind, _ in mine.places()}
    taken = np.isin(lower.instance, mine.instance)
    taken[taken] = [(instance, kind) in named for instance, kind, _ in lower.keep(taken).places()]
    return mine.above(lower.keep(~taken))


def _hidden(lower: Columns, upper: Columns) -> Mask:
    """Current rows of ``lower`` whose instance, kind and region (any, if it is unknown) ``upper`` has too."""
    there = set(upper.keep(np.isin(upper.instance, lower.instance)).places())
    anywhere = {(instance, kind) for instance, kind, _ in there}
    hidden = [
        kind != "prior" and ((instance, kind) in anywhere if region is None else (instance, kind, region) in there)
        for instance, kind, region in lower.places()
    ]
    return np.array(hidden, dtype=np.bool_)


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
