"""How much an epoch of a well-known data set is: ``datasets.csv``, samples or tokens with source and date.

Reads the file, and finds a name as people write it (``ImageNet``, ``cifar10``).
"""

from __future__ import annotations

from functools import lru_cache

from stash.base.errors import UserError
from stash.base.records.base import Count, Record
from stash.keep.catalog.shipped import rows


class KnownDataset(Record):
    """One data set's training split."""

    name: str
    samples: Count | None = None
    tokens: Count | None = None
    """Where its samples are cut from one stream of tokens."""
    as_of: str
    source: str
    notes: str = ""


@lru_cache(maxsize=1)
def known_datasets() -> tuple[KnownDataset, ...]:
    """Every one, in the file's order."""
    return tuple(
        KnownDataset(
            name=row["dataset"],
            samples=int(row["samples"]) if row["samples"] else None,
            tokens=int(row["tokens"]) if row["tokens"] else None,
            as_of=row["as_of"],
            source=row["source"],
            notes=row["notes"],
        )
        for row in rows("datasets.csv")
    )


def known_dataset(name: str) -> KnownDataset:
    """The one of that name, in any case, with or without dashes; raises UserError with those there are."""
    found = [item for item in known_datasets() if _plain(item.name) == _plain(name)]
    if found:
        return found[0]
    names = ", ".join(item.name for item in known_datasets())
    raise UserError(f"unknown data set {name!r}; known are {names}, of any other give --samples")


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
