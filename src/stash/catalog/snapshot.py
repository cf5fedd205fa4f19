"""The user's snapshot of published prices: one JSON file, and what changed from one to the next."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stash.catalog.facts import KINDS, Instance, Offer, Price, is_date
from stash.catalog.offers import NOWHERE, Catalog, Columns, OfferFilter
from stash.core.errors import StashError, UserError, one_line
from stash.core.files import read_up_to, write_whole

# Snapshot --------------------------------------------------------------------------------------------------
# The user-level snapshot of published prices: one JSON file, replaced as a whole or not at all.
#
# It holds one part for each published file, in order of precedence, and a part of past prices. Knows how to read,
# check and write that file; knows nothing of where parts come from or how they merge with other layers.

SCHEMA = 1
_LARGEST = 2**29
"""Bytes that are read; today's price lists make 10 MB."""
_MAX_DOLLARS = 1e9
HISTORY = "history"
"""Name of the part that holds past prices."""


@dataclass(frozen=True)
class Part:
    """What one published file contributed; row numbers of ``columns`` point into ``instances``."""

    name: str
    """``gpuhunt aws``, ``skypilot gcp`` …, or ``history``."""
    url: str
    published: str | None
    """ISO date the publisher gives, if any."""
    retrieved: str
    """ISO date of the download."""
    left_out: int
    """Rows of the published file that made no sense."""
    instances: tuple[Instance, ...]
    columns: Columns

    def prices(self) -> list[Price]:
        """Its offers one by one."""
        columns = self.columns
        regions, dates = (*columns.regions, None), (*columns.dates, None)  # NOWHERE is the last one
        rows = zip(
            *(columns.instance.tolist(), columns.region.tolist(), columns.kind.tolist(), columns.price.tolist()),
            *(columns.as_of.tolist(), columns.origin.tolist()),
            strict=True,
        )
        return [
            Price(
                *(self.instances[instance].cloud, self.instances[instance].name, regions[region], KINDS[kind], price),
                *(dates[date], *columns.origins[origin]),
            )
            for instance, region, kind, price, date, origin in rows
        ]


@dataclass(frozen=True)
class Snapshot:
    """All parts, the more trusted first."""

    created: str
    """UTC, ISO 8601."""
    parts: tuple[Part, ...]

    def part(self, name: str) -> Part | None:
        """The part of that name, if it is there."""
        return next((part for part in self.parts if part.name == name), None)


def read(path: Path) -> Snapshot | None:
    """The snapshot at ``path``, ``None`` when there is none; raises UserError when it is damaged."""
    try:
        text = read_up_to(path, _LARGEST)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"cannot read the catalog's snapshot {path}: {error.strerror}") from error
    try:
        if len(text) > _LARGEST:
            raise ValueError(f"it is larger than {_LARGEST // 2**20} MB")
        return _from_document(json.loads(text))
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        remedy = "delete it, and get a new one with `stash catalog refresh`"
        raise UserError(f"the catalog's snapshot {path} is damaged ({one_line(error)}); {remedy}") from error


def write(snapshot: Snapshot, path: Path) -> None:
    """Put ``snapshot`` at ``path``: the file there is replaced at once, or left as it was. Raises StashError."""
    text = json.dumps(_to_document(snapshot), separators=(",", ":")).encode()
    _from_document(json.loads(text))  # what cannot be read back is not written
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text, mode=0o600)
    except OSError as error:
        raise StashError(
            f"cannot write the catalog's snapshot {path}: {error.strerror}; the old one stays"
        ) from error


def _to_document(snapshot: Snapshot) -> dict[str, Any]:
    return {"schema": SCHEMA, "created": snapshot.created, "parts": [_part_out(part) for part in snapshot.parts]}


def _part_out(part: Part) -> dict[str, Any]:
    columns = part.columns
    return {
        **{name: getattr(part, name) for name in ("name", "url", "published", "retrieved", "left_out")},
        "instances": [instance.model_dump(exclude_none=True, exclude_defaults=True) for instance in part.instances],
        "regions": columns.regions,
        "dates": columns.dates,
        "origins": columns.origins,
        "offers": {name: getattr(columns, name).tolist() for name in Columns.ARRAYS},
    }


def _from_document(document: Any) -> Snapshot:
    if document["schema"] != SCHEMA:
        raise ValueError(f"its schema is {document['schema']}, this Stash reads {SCHEMA}")
    return Snapshot(str(document["created"]), tuple(_part_in(part) for part in document["parts"]))


def _part_in(part: dict[str, Any]) -> Part:
    instances = tuple(Instance.model_validate({**item, "layer": "snapshot"}) for item in part["instances"])
    offers = part["offers"]
    columns = Columns(
        instance=np.array(offers["instance"], dtype=np.int32),
        kind=np.array(offers["kind"], dtype=np.int32),
        region=np.array(offers["region"], dtype=np.int32),
        price=np.array(offers["price"], dtype=np.float64),
        as_of=np.array(offers["as_of"], dtype=np.int32),
        origin=np.array(offers["origin"], dtype=np.int32),
        regions=tuple(map(str, part["regions"])),
        dates=tuple(map(str, part["dates"])),
        origins=tuple((str(source), str(notes)) for source, notes in part["origins"]),
    )
    _check(columns, len(instances))
    about = (str(part["name"]), str(part["url"]), part["published"], str(part["retrieved"]), int(part["left_out"]))
    return Part(*about, instances, columns)


def _check(columns: Columns, instances: int) -> None:
    """Raise ValueError unless every index points somewhere and every price is a price."""
    limits = (
        (columns.instance, 0, instances),
        (columns.kind, 0, len(KINDS)),
        (columns.region, NOWHERE, len(columns.regions)),
        (columns.as_of, NOWHERE, len(columns.dates)),
        (columns.origin, 0, len(columns.origins)),
    )
    for values, least, end in limits:
        if values.shape != columns.price.shape:
            raise ValueError("its columns differ in length")
        if values.size and (values.min() < least or values.max() >= end):
            raise ValueError("an index points nowhere")
    if not ((columns.price > 0).all() and (columns.price < _MAX_DOLLARS).all()):
        raise ValueError("a price is not a positive number")
    strange = next((text for text in columns.dates if not is_date(text)), None)
    if strange is not None:
        raise ValueError(f"{strange[:30]!r} is not a date")


# Changes ---------------------------------------------------------------------------------------------------
# What changed between two catalogs: prices, types that came or went.
#
# Compares current offers only, by instance, region and kind. Knows nothing of where either catalog came from.

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
