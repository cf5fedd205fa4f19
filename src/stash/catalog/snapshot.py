"""The user's snapshot of published prices: one JSON file, replaced as a whole.

It holds a part for each published file: its instances, and a row for each price. Knows nothing of where parts come
from or how they merge.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from stash.catalog.facts import Instance, Price
from stash.core.errors import StashError, UserError, one_line
from stash.core.files import parse_json, read_up_to, write_whole

SCHEMA = 2
_LARGEST = 2**29
"""Bytes that are read; today's price lists make 10 MB."""
_PRICES = TypeAdapter(tuple[Price, ...])


@dataclass(frozen=True)
class Part:
    """What one published file contributed; each of ``prices`` is of one of ``instances``."""

    name: str
    """``gpuhunt aws`` …"""
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


def load_snapshot(path: Path) -> Snapshot | None:
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
        return _parse_snapshot(parse_json(text))
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        remedy = "delete it, and get a new one with `stash catalog refresh`"
        raise UserError(
            f"the catalog's snapshot {path} is damaged ({one_line(error)}); {remedy}"
        ) from error


def save_snapshot(snapshot: Snapshot, path: Path) -> None:
    """Put ``snapshot`` at ``path``: the file there is replaced at once, or left as it was. Raises StashError."""
    parts = [
        {
            "name": part.name,
            "instances": [
                each.model_dump(exclude_none=True, exclude_defaults=True) for each in part.instances
            ],
            "prices": [price[:-1] for price in part.prices],
        }
        for part in snapshot.parts
    ]
    document = {"schema": SCHEMA, "created": snapshot.created, "parts": parts}
    text = json.dumps(document, separators=(",", ":")).encode()
    _parse_snapshot(parse_json(text))  # what cannot be read back is not written
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text, mode=0o600)
    except OSError as error:
        raise StashError(
            f"cannot write the catalog's snapshot {path}: {error.strerror}; the old one stays"
        ) from error


def _parse_snapshot(document: Any) -> Snapshot:
    if document["schema"] != SCHEMA:
        raise ValueError(f"its schema is {document['schema']}, this Stash reads {SCHEMA}")
    return Snapshot(str(document["created"]), tuple(_read_part(part) for part in document["parts"]))


def _read_part(part: dict[str, Any]) -> Part:
    """Raises ValueError or TypeError unless each price is one, of an instance that is there, and each date a date."""
    instances = tuple(
        Instance.model_validate({**item, "layer": "snapshot"}) for item in part["instances"]
    )
    prices = _PRICES.validate_python([(*row, False) for row in part["prices"]])
    if not {price[:2] for price in prices} <= {(each.cloud, each.name) for each in instances}:
        raise ValueError("a price is of no instance")
    return Part(str(part["name"]), instances, prices)
