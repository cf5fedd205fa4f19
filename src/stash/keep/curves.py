"""Loads and saves loss curves, ``*.curve.json``: what ``stash spot learn`` found and ``stash spot plan`` reads.

Knows the versions of their schema. A curve has the manners of a profile's file (``documents``).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from stash.base.errors import ArtefactError
from stash.base.records.mistakes import first_mistake
from stash.base.spot.curve import CURVE_SCHEMA, CURVE_SUFFIX, LearnedCurve
from stash.keep import documents
from stash.keep.documents import Document, DocumentKind, json_object, json_text, others

MIGRATIONS: dict[int, Callable[[Document], Document]] = {}
"""``MIGRATIONS[n]`` turns a curve of schema n into one of schema n + 1."""
KIND = DocumentKind(
    name="loss curve",
    suffix=CURVE_SUFFIX,
    command="stash spot learn",
    version="curve_schema",
    is_not="is not a loss curve:",
    folder="is a folder, not a loss curve",
    others="; curves there, newest first:",
)


def save_curve(curve: LearnedCurve, path: str | os.PathLike[str]) -> None:
    """Write ``curve`` to ``path``, replacing it in one step, for its owner alone; raises ArtefactError."""
    fields = curve.model_dump(mode="json")
    lines = {name: json_text(value) for name, value in fields.items()}
    for name in ("replays", "forms"):
        lines[name] = "[\n  " + ",\n  ".join(json_text(each) for each in fields[name]) + "\n ]"
    documents.save_text(json_object(lines, indent=1) + "\n", Path(path), KIND)


def load_curve(path: str | os.PathLike[str]) -> LearnedCurve:
    """The curve saved at ``path``, of this or any older schema; raises ArtefactError."""
    source = Path(path)
    text = documents.text_of(documents.content_of(source, KIND), source, KIND)
    current = documents.migrated(documents.parsed(text, source, KIND), source, KIND, CURVE_SCHEMA, MIGRATIONS)
    try:
        return LearnedCurve.model_validate(current)
    except ValidationError as error:
        raise ArtefactError(f"{source} {KIND.is_not} {first_mistake(error)}; {others(KIND)}") from error
