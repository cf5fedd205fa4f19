"""Loads and saves profiles and probes: one JSON document each, written whole or not at all.

Knows the file's life: versions of the schema and how old ones become new, and what to say when a file is
missing, damaged or from a newer Stash. Knows nothing of what the numbers mean.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from stash.base.errors import ArtefactError
from stash.base.files import read_up_to, write_whole
from stash.base.records import SCHEMA, SUFFIX, Probe, Profile
from stash.base.records.mistakes import first_mistake
from stash.keep.columns import ColumnError, from_columns, of_rows, to_columns

Document = dict[str, Any]
LARGEST = 2**29
"""Bytes of a file that is read: a profile of 1,024 ranks and 30 rounds takes 19 MB."""
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


class _ArtefactKind(NamedTuple):
    """One kind of artefact: what to call it, its files' ending, what writes it, a field by which to know it.

    What is said of a wrong file is written out for each, so that a sentence can be found in the source.
    """

    name: str
    suffix: str
    command: str
    mark: str
    is_not: str
    folder: str
    others: str


_KINDS: dict[type[Profile] | type[Probe], _ArtefactKind] = {
    Profile: _ArtefactKind(
        name="profile",
        suffix=SUFFIX,
        command="stash profile",
        mark="workload",
        is_not="is not a profile:",
        folder="is a folder, not a profile",
        others="; profiles there, newest first:",
    ),
    Probe: _ArtefactKind(
        name="probe",
        suffix=PROBE_SUFFIX,
        command="stash probe",
        mark="hosts",
        is_not="is not a probe:",
        folder="is a folder, not a probe",
        others="; probes there, newest first:",
    ),
}
"""Looked through in this order: a profile has hosts too."""


def save(artefact: Profile | Probe, path: str | os.PathLike[str]) -> None:
    """Write ``artefact`` to ``path``, replacing it in one step; raises ArtefactError.

    The document is complete on disk before it takes the name: whoever reads ``path`` at any moment
    sees the old document or the new one, also after a power cut.
    """
    target = Path(path)
    try:
        write_whole(target, _written(document(artefact)), mode=0o600)
    except OSError as error:
        raise ArtefactError(_why_not_written(target, error, _KINDS[type(artefact)])) from error


def save_new(artefact: Profile | Probe, path: str | os.PathLike[str]) -> Path:
    """The same under a name that nothing has: ``path``, else with the first free number; raises ArtefactError.

    The name is taken in one step, so that of two that save at once each gets its own.
    """
    kind, text = _KINDS[type(artefact)], _written(document(artefact))
    for target in numbered(Path(path), kind.suffix):
        try:
            write_whole(target, text, mode=0o600, new=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise ArtefactError(_why_not_written(target, error, kind)) from error
        return target
    raise AssertionError("there is always another number")


def numbered(path: Path, suffix: str) -> Iterator[Path]:
    """``run.stash.json``, ``run-2.stash.json`` and so on, for ever."""
    ending = suffix if path.name.endswith(suffix) else path.suffix
    stem = path.name.removesuffix(ending)
    numbers = itertools.chain([""], (f"-{n}" for n in itertools.count(2)))
    return (path.with_name(f"{stem}{number}{ending}") for number in numbers)


def document(artefact: Profile | Probe) -> Document:
    """What is saved of ``artefact``, as JSON has it."""
    if isinstance(artefact, Probe):
        return artefact.model_dump(mode="json")
    dumped = artefact.model_dump(mode="json", exclude={"blocks"})
    columns = to_columns(artefact.blocks)
    return {name: columns if name == "blocks" else dumped[name] for name in Profile.model_fields}


def _written(fields: Document) -> str:
    """A line for each field, and for each column of the blocks: large jobs have very many numbers."""
    lines = {name: _json(value) for name, value in fields.items()}
    if "blocks" in lines:
        lines["blocks"] = _object({name: _json(column) for name, column in fields["blocks"].items()}, indent=2)
    return _object(lines, indent=1) + "\n"


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace").decode()  # what UTF-8 cannot hold, JSON can escape


def _object(members: dict[str, str], indent: int) -> str:
    between = ",\n" + " " * indent
    return "{\n" + " " * indent + between.join(f"{_json(name)}: {text}" for name, text in members.items()) + "\n}"


def _why_not_written(target: Path, error: OSError, kind: _ArtefactKind) -> str:
    folder = target.parent
    if target.is_dir():
        return f"cannot write the {kind.name} to {target}: it is a folder; name a file in it"
    if not folder.is_dir():
        return f"cannot write {target}: the folder {folder} does not exist; create it with `mkdir -p {folder}`"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"cannot write {target}: no permission to write in {folder}; choose another file with --output"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"cannot write {target}: no space left; free some, or choose another disk with --output"
    return f"cannot write {target}: {error.strerror or error}; choose another file with --output"


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
    return _content(source, _expected(source))


def from_bytes(content: bytes, source: str | os.PathLike[str]) -> Profile | Probe:
    """The same of what is saved at ``source``, as bytes: for what comes from elsewhere than a file."""
    source = Path(source)
    expected = _expected(source)
    document = _parsed(source, _text(source, content, expected), expected)
    return _made(source, document, Probe) if _kind_of(document) == _KINDS[Probe] else _made(source, document, Profile)


def to_bytes(artefact: Profile | Probe) -> bytes:
    """What a file of ``artefact`` holds."""
    return _written(document(artefact)).encode()


def _expected(source: Path) -> _ArtefactKind:
    return _KINDS[Probe if source.name.endswith(PROBE_SUFFIX) else Profile]


def _load(source: Path, record: type[Artefact]) -> Artefact:
    kind = _KINDS[record]
    return _made(source, _parsed(source, _text(source, _content(source, kind), kind), kind), record)


def _made(source: Path, document: Document, record: type[Artefact]) -> Artefact:
    kind, other = _KINDS[record], _kind_of(document)
    try:
        return record.model_validate(_with_blocks(_migrated(source, document)))
    except ColumnError as error:
        raise ArtefactError(f"{source} {kind.is_not} {error}; {_others(kind)}") from error
    except ValidationError as error:
        if other is not None and other != kind:
            raise ArtefactError(
                f"{source} is a {other.name}, not a {kind.name}; name one of the *{kind.suffix} files that "
                f"`{kind.command}` writes"
            ) from None
        raise ArtefactError(f"{source} {kind.is_not} {first_mistake(error)}; {_others(kind)}") from error


def _others(kind: _ArtefactKind) -> str:
    return f"{kind.name}s are the *{kind.suffix} files that `{kind.command}` writes"


def _with_blocks(document: Document) -> Document:
    columns = document.get("blocks")
    parts = columns if isinstance(columns, list) else [columns]
    if not all(isinstance(part, dict) for part in parts):
        return document
    return {**document, "blocks": (*itertools.chain.from_iterable(map(from_columns, parts)),)}


def _kind_of(document: Document) -> _ArtefactKind | None:
    return next((kind for kind in _KINDS.values() if kind.mark in document), None)


def _text(source: Path, content: bytes, kind: _ArtefactKind) -> str:
    if len(content) > LARGEST:
        raise ArtefactError(f"{source} {kind.is_not} it is larger than {LARGEST // 2**20} MB; {_others(kind)}")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise ArtefactError(f"{source} {kind.is_not} it is not text") from None


def _content(source: Path, kind: _ArtefactKind) -> bytes:
    try:
        return read_up_to(source, LARGEST)
    except FileNotFoundError:
        raise ArtefactError(f"there is no file {source}{_suggestions(source, kind)}") from None
    except IsADirectoryError:
        raise ArtefactError(f"{source} {kind.folder}{_suggestions(source / 'x', kind)}") from None
    except OSError as error:
        raise ArtefactError(f"cannot read {source}: {error.strerror or error}") from error


def _suggestions(source: Path, kind: _ArtefactKind, most: int = 5) -> str:
    try:
        found = [path for path in source.parent.glob(f"*{kind.suffix}") if path.is_file()]
        found.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        found = []
    if not found:
        return f"; `{kind.command}` writes one"
    more = "" if len(found) <= most else f" and {len(found) - most} more"
    return f"{kind.others} {', '.join(str(path) for path in found[:most])}{more}"


def _parsed(source: Path, text: str, kind: _ArtefactKind) -> Document:
    try:
        document = _joined(text)
    except json.JSONDecodeError as error:
        if text.lstrip().startswith("{"):
            where = f"line {error.lineno}, column {error.colno}"
            raise ArtefactError(f"{source} is damaged or cut short: its JSON breaks at {where}") from None
        raise ArtefactError(f"{source} {kind.is_not} it is not JSON") from None
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits; very many brackets
        what = "its brackets are nested too deep" if isinstance(error, RecursionError) else "a number is too long"
        raise ArtefactError(f"{source} {kind.is_not} {what}; {_others(kind)}") from None
    if not isinstance(document, dict) or type(document.get("schema_version")) is not int:
        raise ArtefactError(f"{source} {kind.is_not} it is JSON, but has no schema_version")
    return document


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


def _migrated(source: Path, document: Document) -> Document:
    version = int(document["schema_version"])
    if version > SCHEMA:
        raise ArtefactError(
            f"{source} was made by a newer Stash (schema {version}; this one reads up to {SCHEMA}); "
            "upgrade Stash to read it"
        )
    while version < SCHEMA:
        step = MIGRATIONS.get(version)
        if step is None:
            raise ArtefactError(f"{source} has schema {version}, which no Stash ever wrote")
        document = step(document)
        version += 1
        document = {**document, "schema_version": version}
    return document
