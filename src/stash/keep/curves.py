"""Loads and saves loss curves, ``*.curve.json``: what ``stash spot learn`` found and ``stash spot plan`` reads.

Knows the versions of their schema. A curve has the manners of a profile's file (``documents``).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from stash.base.spot.curve import CURVE_SCHEMA, CURVE_SUFFIX, LearnedCurve
from stash.keep import documents
from stash.keep.documents import Document, DocumentKind

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
    documents.save_text(documents.lined(curve.model_dump(mode="json"), ("replays", "forms")), Path(path), KIND)


def load_curve(path: str | os.PathLike[str]) -> LearnedCurve:
    """The curve saved at ``path``, of this or any older schema; raises ArtefactError."""
    return documents.load_record(Path(path), KIND, LearnedCurve, CURVE_SCHEMA, MIGRATIONS)
