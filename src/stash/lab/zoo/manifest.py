"""``stash-dataset.json``: what a generated data set is meant to be, and whether it is finished.

Knows the file's fields and how to replace it in one step. Does not look at the samples beside it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from stash.base.errors import UserError
from stash.base.files import write_whole

MANIFEST = "stash-dataset.json"
FORMAT = 1


@dataclass(frozen=True)
class Manifest:
    """The contents of ``stash-dataset.json``."""

    kind: str
    seed: int
    count: int
    """Samples asked for."""
    complete: bool = False
    bytes: int | None = None
    """Bytes of all samples, once complete."""
    format: int = FORMAT


def read_manifest(root: Path) -> Manifest | None:
    """The manifest of a data set, None if the folder has none; raises UserError if it is damaged."""
    try:
        text = (root / MANIFEST).read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fields = json.loads(text)
        if fields["format"] > FORMAT:
            raise UserError(f"{root / MANIFEST} was written by a newer Stash; update this one")
        return Manifest(
            str(fields["kind"]),
            int(fields["seed"]),
            int(fields["count"]),
            bool(fields["complete"]),
            fields["bytes"],
        )
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(
            f"{root / MANIFEST} is damaged; delete it and its folder, and make the data set again"
        ) from error


def write_manifest(root: Path, manifest: Manifest) -> None:
    """Replace the manifest in one step, flushed to storage; raises OSError."""
    write_whole(root / MANIFEST, json.dumps(asdict(manifest), indent=1) + "\n")
