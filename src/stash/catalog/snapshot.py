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

import numpy as np
from numpy.typing import NDArray

from stash.catalog.facts import KINDS, Instance, is_date
from stash.catalog.offers import Columns, texts
from stash.core.errors import StashError, UserError, one_line
from stash.core.files import parse_json, read_up_to, write_whole

T = TypeVar("T")
SCHEMA = 1
_LARGEST = 2**29
"""Bytes that are read; today's price lists make 10 MB."""
_MAX_DOLLARS = 1e9


@dataclass(frozen=True)
class Part:
    """What one published file contributed; row numbers of ``columns`` point into ``instances``."""

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
    columns: Columns


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
    columns = part.columns
    regions, region = _numbered(columns.region.tolist())
    dates, as_of = _numbered(columns.as_of.tolist())
    origins, origin = _numbered(list(zip(columns.source.tolist(), columns.notes.tolist(), strict=True)))
    offers = {
        "instance": columns.instance.tolist(),
        "kind": [KINDS.index(kind) for kind in columns.kind.tolist()],
        "region": region,
        "price": columns.price.tolist(),
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
    price = np.array(offers["price"], dtype=np.float64)
    if not ((price > 0).all() and (price < _MAX_DOLLARS).all()):
        raise ValueError("a price is not a positive number")
    strange = next((text for text in dates if not is_date(text)), None)
    if strange is not None:
        raise ValueError(f"{strange[:30]!r} is not a date")

    def numbers(name: str, count: int, unknown: bool = False) -> NDArray[np.int32]:
        found = np.array(offers[name], dtype=np.int32)
        if found.shape != price.shape:
            raise ValueError("its columns differ in length")
        if found.size and (found.min() < (-1 if unknown else 0) or found.max() >= count):
            raise ValueError("an index points nowhere")
        return found

    regions, origins = [str(each) for each in part["regions"]], part["origins"]
    origin = numbers("origin", len(origins))
    columns = Columns(
        instance=numbers("instance", len(instances)),
        kind=texts(KINDS)[numbers("kind", len(KINDS))],
        region=texts([*regions, None])[numbers("region", len(regions), unknown=True)],
        price=price,
        as_of=texts([*dates, None])[numbers("as_of", len(dates), unknown=True)],
        source=texts([str(source) for source, _ in origins])[origin],
        notes=texts([str(notes) for _, notes in origins])[origin],
        own=np.zeros(price.shape, dtype=np.bool_),
    )
    about = (str(part["name"]), str(part["url"]), part["published"], str(part["retrieved"]), int(part["left_out"]))
    return Part(*about, instances, columns)
