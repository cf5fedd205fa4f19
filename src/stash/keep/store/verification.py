"""Every file of a store looked at: which are not what they should be, and why. Never changes or removes anything."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from stash.base.errors import StashError
from stash.base.records import SCHEMA, Probe
from stash.keep import artefact as artefacts
from stash.keep.documents import LARGEST
from stash.keep.store import names
from stash.keep.store.store import Store

CORRUPT, TRUNCATED, FOREIGN, NEWER, UNFINISHED = "corrupt", "truncated", "foreign", "newer", "unfinished"
_HALF = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")
"""What is left of a file whose writer was killed (``base/files.py``)."""


class Suspect(NamedTuple):
    """A file that is not what a store should hold."""

    name: str
    kind: str
    """One of the five words above."""
    why: str


def verify(store: Store, say: Callable[[int, int], None] = lambda done, of: None) -> tuple[int, list[Suspect]]:
    """How many artefacts are whole, and every file that is not; ``say`` hears how many of how many were read."""
    contents = store.contents()
    artefacts_there = [*contents.stored, *contents.loose]
    suspects = [_other(name) for name in contents.others]
    for done, name in enumerate(artefacts_there, 1):
        suspects.extend(_looked_at(store, name))
        say(done, len(artefacts_there))
    return len(artefacts_there) - (len(suspects) - len(contents.others)), suspects


def _other(name: str) -> Suspect:
    if _HALF.fullmatch(name):
        return Suspect(name, UNFINISHED, "its writer was ended before it was whole; nothing reads it")
    return Suspect(name, FOREIGN, "it is called like no artefact; nothing reads it")


def _looked_at(store: Store, name: str) -> Iterator[Suspect]:
    """What is wrong with an artefact, if anything is; its content is read once."""
    try:
        content = store.shelf.read(name, LARGEST)
    except FileNotFoundError:
        return  # removed meanwhile
    except StashError as error:
        yield Suspect(name, CORRUPT, str(error))
        return
    known = names.stored(name)
    altered = known is not None and names.digest_of(content) != known.id
    try:
        found = artefacts.from_bytes(content, name)
    except StashError as error:
        yield Suspect(name, _kind(content), str(error))
        return
    suffix = names.SUFFIXES[isinstance(found, Probe)]
    if altered:
        yield Suspect(name, CORRUPT, "its content is not what its name says: it was changed after it was put here")
    elif not name.endswith(suffix) or (known is not None and name != names.name_of(content, found.created, suffix)):
        yield Suspect(name, FOREIGN, "its name is not the one that a store gives to what is in it")


def _kind(content: bytes) -> str:
    """What is wrong with an artefact that cannot be read."""
    try:
        found: Any = json.loads(content)
    except (ValueError, RecursionError):
        return TRUNCATED if content.lstrip()[:1] in (b"{", b"") else FOREIGN
    version = found.get("schema_version") if isinstance(found, dict) else None
    if type(version) is not int:
        return FOREIGN
    return NEWER if version > SCHEMA else CORRUPT
