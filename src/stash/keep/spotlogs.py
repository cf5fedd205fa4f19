"""Loads and saves logs of runs, ``*.spotlog.json``: what ``stash spot run`` lived through.

Knows the versions of their schema. A log has the manners of a profile's file (``documents``).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from stash.base.spot.log import SPOT_LOG_SCHEMA, SPOT_LOG_SUFFIX, SpotLog
from stash.keep import documents
from stash.keep.documents import Document, DocumentKind

MIGRATIONS: dict[int, Callable[[Document], Document]] = {}
"""``MIGRATIONS[n]`` turns a log of schema n into one of schema n + 1."""
_KIND = DocumentKind(
    name="run's log",
    suffix=SPOT_LOG_SUFFIX,
    command="stash spot run",
    version="log_schema",
    is_not="is not a run's log:",
    folder="is a folder, not a run's log",
    others="; logs there, newest first:",
)


def save_spot_log(log: SpotLog, path: str | os.PathLike[str]) -> None:
    """Write ``log`` to ``path``, replacing it in one step, for its owner alone; raises ArtefactError."""
    documents.save_text(
        documents.lined(log.model_dump(mode="json"), ("stretches", "takeovers", "events")), Path(path), _KIND
    )


def load_spot_log(path: str | os.PathLike[str]) -> SpotLog:
    """The log saved at ``path``, of this or any older schema; raises ArtefactError."""
    return documents.load_record(Path(path), _KIND, SpotLog, SPOT_LOG_SCHEMA, MIGRATIONS)


def is_spot_log(word: str | os.PathLike[str]) -> bool:
    """Whether ``word`` is the name of a log's file: by its ending, or by how what is there begins."""
    return documents.is_one(word, _KIND)
