"""Loads and saves profiles and probes: one JSON document each, written whole or not at all.

Knows which of the two a file is, the versions of their schema and how old ones become new. Knows nothing of what the
numbers mean; the life of a file is ``documents``' business.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from stash.base.errors import ArtefactError
from stash.base.records import SCHEMA, SUFFIX, Probe, Profile
from stash.base.records.mistakes import first_mistake
from stash.keep import documents
from stash.keep.columns import ColumnError, from_columns, of_rows, to_columns
from stash.keep.documents import Document, DocumentKind, json_object, json_text, others

Artefact = TypeVar("Artefact", Profile, Probe)

PROBE_SUFFIX = ".host.json"


def _blocks_in_columns(document: Document) -> Document:
    """Schema 1 held each block as an object of its own."""
    rows = document.get("blocks")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return document
    return {**document, "blocks": of_rows(rows)}


def _without_new_facts(document: Document) -> Document:
    """Schema 2 had none of the facts that prediction needs; all of them may be missing."""
    return document


MIGRATIONS: dict[int, Callable[[Document], Document]] = {1: _blocks_in_columns, 2: _without_new_facts}
"""``MIGRATIONS[n]`` turns a document of schema n into one of schema n + 1."""

_KINDS: dict[type[Profile] | type[Probe], DocumentKind] = {
    Profile: DocumentKind(
        name="profile",
        suffix=SUFFIX,
        command="stash profile",
        version="schema_version",
        is_not="is not a profile:",
        folder="is a folder, not a profile",
        others="; profiles there, newest first:",
    ),
    Probe: DocumentKind(
        name="probe",
        suffix=PROBE_SUFFIX,
        command="stash probe",
        version="schema_version",
        is_not="is not a probe:",
        folder="is a folder, not a probe",
        others="; probes there, newest first:",
    ),
}
_MARKS: dict[type[Profile] | type[Probe], str] = {Profile: "workload", Probe: "hosts"}
"""A field by which to know each, looked through in this order: a profile has hosts too."""


def save(artefact: Profile | Probe, path: str | os.PathLike[str]) -> None:
    """Write ``artefact`` to ``path``, replacing it in one step; raises ArtefactError.

    The document is complete on disk before it takes the name: whoever reads ``path`` at any moment
    sees the old document or the new one, also after a power cut.
    """
    documents.save_text(_written(document(artefact)), Path(path), _KINDS[type(artefact)])


def save_new(artefact: Profile | Probe, path: str | os.PathLike[str]) -> Path:
    """The same under a name that nothing has: ``path``, else with the first free number; raises ArtefactError."""
    return documents.save_text_new(_written(document(artefact)), Path(path), _KINDS[type(artefact)])


def document(artefact: Profile | Probe) -> Document:
    """What is saved of ``artefact``, as JSON has it."""
    if isinstance(artefact, Probe):
        return artefact.model_dump(mode="json")
    dumped = artefact.model_dump(mode="json", exclude={"blocks"})
    columns = to_columns(artefact.blocks)
    return {name: columns if name == "blocks" else dumped[name] for name in Profile.model_fields}


def _written(fields: Document) -> str:
    """A line for each field, and for each column of the blocks: large jobs have very many numbers."""
    lines = {name: json_text(value) for name, value in fields.items()}
    if "blocks" in lines:
        lines["blocks"] = json_object(
            {name: json_text(column) for name, column in fields["blocks"].items()}, indent=2
        )
    return json_object(lines, indent=1) + "\n"


def load(path: str | os.PathLike[str]) -> Profile:
    """The profile saved at ``path``, of this or any older schema; raises ArtefactError."""
    return _load(Path(path), Profile)


def load_probe(path: str | os.PathLike[str]) -> Probe:
    """The probe saved at ``path``, of this or any older schema; raises ArtefactError."""
    return _load(Path(path), Probe)


def load_any(path: str | os.PathLike[str]) -> Profile | Probe:
    """The profile or the probe saved at ``path``, whichever it is; raises ArtefactError.

    What cannot be read is taken for what it is called like.
    """
    source = Path(path)
    return from_bytes(content_of(source), source)


def content_of(source: Path) -> bytes:
    """The bytes of a file that is to be a profile or a probe; raises ArtefactError."""
    return documents.content_of(source, _expected(source))


def from_bytes(content: bytes, source: str | os.PathLike[str]) -> Profile | Probe:
    """The same of what is saved at ``source``, as bytes: for what comes from elsewhere than a file."""
    source = Path(source)
    expected = _expected(source)
    document = _parsed(documents.text_of(content, source, expected), source, expected)
    return _made(source, document, Probe) if _record_of(document) is Probe else _made(source, document, Profile)


def to_bytes(artefact: Profile | Probe) -> bytes:
    """What a file of ``artefact`` holds."""
    return _written(document(artefact)).encode()


def _expected(source: Path) -> DocumentKind:
    return _KINDS[Probe if source.name.endswith(PROBE_SUFFIX) else Profile]


def _load(source: Path, record: type[Artefact]) -> Artefact:
    kind = _KINDS[record]
    text = documents.text_of(documents.content_of(source, kind), source, kind)
    return _made(source, _parsed(text, source, kind), record)


def _made(source: Path, document: Document, record: type[Artefact]) -> Artefact:
    kind, other = _KINDS[record], _record_of(document)
    try:
        current = documents.migrated(document, source, kind, SCHEMA, MIGRATIONS)
        return record.model_validate(_with_blocks(current))
    except ColumnError as error:
        raise ArtefactError(f"{source} {kind.is_not} {error}; {others(kind)}") from error
    except ValidationError as error:
        if other is not None and other is not record:
            raise ArtefactError(
                f"{source} is a {_KINDS[other].name}, not a {kind.name}; name one of the *{kind.suffix} files that "
                f"`{kind.command}` writes"
            ) from None
        raise ArtefactError(f"{source} {kind.is_not} {first_mistake(error)}; {others(kind)}") from error


def _with_blocks(document: Document) -> Document:
    columns = document.get("blocks")
    parts = columns if isinstance(columns, list) else [columns]
    if not all(isinstance(part, dict) for part in parts):
        return document
    return {**document, "blocks": (*itertools.chain.from_iterable(map(from_columns, parts)),)}


def _record_of(document: Document) -> type[Profile] | type[Probe] | None:
    return next((record for record, mark in _MARKS.items() if mark in document), None)


def _parsed(text: str, source: Path, kind: DocumentKind) -> Document:
    return documents.parsed(text, source, kind, _joined)


def _joined(text: str) -> Any:
    """The document of a file, with the rounds that lines after it tell (``growing``); the last may be cut short."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise
        document, lines = json.loads(text[: error.pos]), text[error.pos :].split("\n")[:-1]
    parts = [document, *map(json.loads, lines)]
    if not all(isinstance(part, dict) and isinstance(part.get("blocks"), dict) for part in parts):
        raise json.JSONDecodeError("not the rounds of a profile", text, len(text))
    blocks = [part["blocks"] for part in parts]
    return {name: value for part in parts for name, value in part.items()} | {"blocks": blocks}
