"""The user's snapshot of published prices: one JSON file, replaced as a whole.

It holds a part for each published file. Texts are numbered in the
file, since few of them stand in very many offers. Knows nothing of where parts come from or how they merge.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from stash.catalog.facts import KINDS, Instance, Price, is_date
from stash.core.errors import StashError, UserError, one_line
from stash.core.files import parse_json, read_up_to, write_whole

T = TypeVar("T")
SCHEMA = 1
_LARGEST = 2**29
"""Bytes that are read; today's price lists make 10 MB."""
_MAX_DOLLARS = 1e9


@dataclass(frozen=True)
class Part:
    """What one published file contributed; each of ``prices`` is of one of ``instances``."""

    name: str
    """``gpuhunt aws`` …"""
    url: str
    published: str | None
    """ISO date the publisher gives, if any."""
    retrieved: str
    """ISO date of the download."""
    left_out: int
    """Rows of the published file that made no sense."""
    instances: tuple[Instance, ...]
    prices: tuple[Price, ...]


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
        return _from_document(parse_json(text))
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        remedy = "delete it, and get a new one with `stash catalog refresh`"
        raise UserError(f"the catalog's snapshot {path} is damaged ({one_line(error)}); {remedy}") from error


def write(snapshot: Snapshot, path: Path) -> None:
    """Put ``snapshot`` at ``path``: the file there is replaced at once, or left as it was. Raises StashError."""
    parts = [_part_out(part) for part in snapshot.parts]
    document = {"schema": SCHEMA, "created": snapshot.created, "parts": parts}
    text = json.dumps(document, separators=(",", ":")).encode()
    _from_document(parse_json(text))  # what cannot be read back is not written
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text, mode=0o600)
    except OSError as error:
        raise StashError(
            f"cannot write the catalog's snapshot {path}: {error.strerror}; the old one stays"
        ) from error


def _part_out(part: Part) -> dict[str, Any]:
    prices = part.prices
    index = {(instance.cloud, instance.name): number for number, instance in enumerate(part.instances)}
    regions, region = _numbered([price.region for price in prices])
    dates, as_of = _numbered([price.as_of for price in prices])
    origins, origin = _numbered([(price.source, price.notes) for price in prices])
    offers = {
        "instance": [index[price.cloud, price.instance] for price in prices],
        "kind": [KINDS.index(price.kind) for price in prices],
        "region": region,
        "price": [price.dollars_per_hour for price in prices],
        "as_of": as_of,
        "origin": origin,
    }
    return {
        **{name: getattr(part, name) for name in ("name", "url", "published", "retrieved", "left_out")},
        "instances": [instance.model_dump(exclude_none=True, exclude_defaults=True) for instance in part.instances],
        "regions": regions,
        "dates": dates,
        "origins": origins,
        "offers": offers,
    }


def _numbered(values: Sequence[T | None]) -> tuple[list[T], list[int]]:
    """Each value once, and which of them every one is; -1 for ``None``."""
    once = [value for value in dict.fromkeys(values) if value is not None]
    numbers: dict[T | None, int] = {value: number for number, value in enumerate(once)}
    return once, [numbers.get(value, -1) for value in values]


def _from_document(document: Any) -> Snapshot:
    if document["schema"] != SCHEMA:
        raise ValueError(f"its schema is {document['schema']}, this Stash reads {SCHEMA}")
    return Snapshot(str(document["created"]), tuple(_part_in(part) for part in document["parts"]))


def _part_in(part: dict[str, Any]) -> Part:
    """Raises ValueError unless every number stands for something, every price is a price and every date a date."""
    instances = tuple(Instance.model_validate({**item, "layer": "snapshot"}) for item in part["instances"])
    offers, dates = part["offers"], [str(each) for each in part["dates"]]
    dollars = [float(each) for each in offers["price"]]
    if not all(0 < each < _MAX_DOLLARS for each in dollars):
        raise ValueError("a price is not a positive number")
    strange = next((text for text in dates if not is_date(text)), None)
    if strange is not None:
        raise ValueError(f"{strange[:30]!r} is not a date")

    def taken(name: str, values: Sequence[T]) -> list[T]:
        """The value that each number stands for; -1 is the last of ``values``."""
        if len(offers[name]) != len(dollars):
            raise ValueError("its columns differ in length")
        lowest = -1 if values and values[-1] is None else 0
        if not all(isinstance(each, int) and lowest <= each < len(values) for each in offers[name]):
            raise ValueError("an index points nowhere")
        return [values[each] for each in offers[name]]

    prices = tuple(
        Price(instance.cloud, instance.name, region, kind, price, as_of, str(source), str(notes))
        for instance, region, kind, price, as_of, (source, notes) in zip(
            taken("instance", instances),
            taken("region", [*map(str, part["regions"]), None]),
            taken("kind", KINDS),
            dollars,
            taken("as_of", [*dates, None]),
            taken("origin", part["origins"]),
            strict=True,
        )
    )
    about = (str(part["name"]), str(part["url"]), part["published"], str(part["retrieved"]), int(part["left_out"]))
    return Part(*about, instances, prices)
