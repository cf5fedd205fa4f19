"""``stash-dataset.json``: what a generated data set is meant to be, and whether it is finished.

Knows the file's fields and how to replace it in one step. Does not look at the samples beside it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from stash.base.errors import UserError, one_line
from stash.base.files import read_up_to, write_whole
from stash.base.records.base import Count

MANIFEST = "stash-dataset.json"
FORMAT = 1
_LARGEST = 2**16
"""Bytes that are read: a whole one has two hundred."""


@dataclass(frozen=True)
class Manifest:
    """The contents of ``stash-dataset.json``."""

    kind: str
    seed: Count
    count: Count
    """Samples asked for."""
    complete: bool = False
    bytes: Count | None = None
    """Bytes of all samples, once complete."""
    format: int = FORMAT


def read_manifest(root: Path) -> Manifest | None:
    """The manifest of a data set, None if the folder has none; raises UserError if it is damaged."""
    try:
        content = read_up_to(root / MANIFEST, _LARGEST)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"cannot read {root / MANIFEST}: {error.strerror}") from error
    try:
        fields = json.loads(content)
        if fields["format"] > FORMAT:
            raise UserError(f"{root / MANIFEST} was written by a newer Stash; update this one")
        return TypeAdapter(Manifest).validate_python(fields)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UserError(
            f"{root / MANIFEST} is damaged; delete it and its folder, and make the data set again ({one_line(error)})"
        ) from error


def write_manifest(root: Path, manifest: Manifest) -> None:
    """Replace the manifest in one step, flushed to storage; raises OSError."""
    write_whole(root / MANIFEST, json.dumps(asdict(manifest), indent=1) + "\n")
