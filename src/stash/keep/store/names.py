"""What an artefact is called in a store: when it was made, so that names sort, and what is in it, so that none is
taken twice. The same artefact has the same name wherever it is put; a different one never has.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import NamedTuple

from stash.base.errors import UserError
from stash.base.printable import printable_line
from stash.base.records import SUFFIX
from stash.keep.artefact import PROBE_SUFFIX

SUFFIXES = (SUFFIX, PROBE_SUFFIX)
SHOWN = 10
"""Characters of an id in a list."""
_ID = 24
"""Hexadecimal digits of SHA-256: of a million artefacts, two share one with a chance of 10^-17."""
_UNDATED = "00000000T000000Z"
"""For an artefact whose date nobody can read."""
_NAME = re.compile(
    rf"(?P<moment>\d{{8}}T\d{{6}}Z)-(?P<id>[0-9a-f]{{{_ID}}})(?P<suffix>{'|'.join(map(re.escape, SUFFIXES))})"
)


class StoredName(NamedTuple):
    """The parts of a name that a store gave."""

    moment: str
    id: str
    suffix: str


def name_of(content: bytes, created: str, suffix: str) -> str:
    """The name of an artefact made at ``created`` (ISO 8601) whose file holds ``content``."""
    return f"{_moment(created)}-{digest_of(content)}{suffix}"


def digest_of(content: bytes) -> str:
    """An artefact's id."""
    return hashlib.sha256(content).hexdigest()[:_ID]


def stored(name: str) -> StoredName | None:
    """The parts of ``name``; ``None`` of a file that somebody put into the store under a name of their own."""
    found = _NAME.fullmatch(name)
    return None if found is None else StoredName(**found.groupdict())


def is_artefact(name: str) -> bool:
    """Whether a file is called like an artefact."""
    return name.endswith(SUFFIXES) and not name.startswith(".")


def id_of(name: str) -> str:
    """What people call the artefact of this name: its id, or a file's own name without its ending."""
    known = stored(name)
    return known.id if known is not None else stem(name)


def stem(name: str) -> str:
    """A file's name without the ending of its kind."""
    suffix = next((suffix for suffix in SUFFIXES if name.endswith(suffix)), "")
    return name.removesuffix(suffix)


def found(word: str, names: Sequence[str], where: str) -> str:
    """The one of ``names`` that ``word`` means: a name, an id or a file's stem, or what only one begins with.

    Raises UserError where it is none's beginning, or that of several.
    """
    if word in names:
        return word
    whole = [name for name in names if id_of(name) == word or stem(name) == word]
    begins = whole or [name for name in names if word and (id_of(name).startswith(word) or name.startswith(word))]
    if len(begins) == 1:
        return begins[0]
    said = printable_line(word, 200)
    if not begins:
        raise UserError(f"{where} has no artefact {said}; `stash list {where}` lists all")
    listed = ", ".join(printable_line(id_of(name), 100) for name in begins[:4])
    more = f" and {len(begins) - 4} more" if len(begins) > 4 else ""
    raise UserError(f"{said} may be {listed}{more} of {where}; type more of one of them")


def _moment(created: str) -> str:
    try:
        moment = datetime.fromisoformat(created.replace("Z", "+00:00"))
        return moment.astimezone(timezone.utc).strftime("%Y%m%dT%H%M%SZ").rjust(len(_UNDATED), "0")
    except (ValueError, OverflowError):
        return _UNDATED
