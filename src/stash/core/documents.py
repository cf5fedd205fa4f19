"""Files of one JSON document each: written whole or not at all, read within bounds, and what to say of one that is
missing, damaged, something else or from a newer Stash.

Knows the life of such a file, whatever it holds; the kinds of documents and their schemas are their own modules'.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from stash.core.errors import ArtefactError
from stash.core.files import read_up_to, write_whole
from stash.core.records.base import Record, first_mistake

Document = dict[str, Any]
LARGEST = 2**29
"""Bytes of a file that is read: a profile of 1,024 ranks and 30 rounds takes 19 MB."""
_OF_FIELD = {
    "curve_schema": "a curve of `stash spot learn`",
    "log_schema": "a log of `stash spot run`",
    "plan_schema": "a plan of `stash recommend`",
    "schema_version": "a profile or a probe",
}
"""What a document is, by the field that tells its schema; looked at where another one was expected."""


R = TypeVar("R", bound=Record)


class DocumentKind(NamedTuple):
    """One kind of document: what to call it, its files' ending, what writes it, the field that tells its schema.

    What is said of a wrong file is written out for each, so that a sentence can be found in the source.
    """

    name: str
    suffix: str
    command: str
    version: str
    is_not: str
    folder: str
    others: str


def numbered(path: Path, suffix: str) -> Iterator[Path]:
    """``run.stash.json``, ``run-2.stash.json`` and so on, for ever."""
    ending = suffix if path.name.endswith(suffix) else path.suffix
    stem = path.name.removesuffix(ending)
    numbers = itertools.chain([""], (f"-{n}" for n in itertools.count(2)))
    return (path.with_name(f"{stem}{number}{ending}") for number in numbers)


# Writing ---------------------------------------------------------------------------------------------------


def save_text(text: str, target: Path, kind: DocumentKind) -> None:
    """Put a document at ``target``, replacing it in one step; raises ArtefactError."""
    try:
        write_whole(target, text, mode=0o600)
    except OSError as error:
        raise ArtefactError(_why_not_written(target, error, kind)) from error


def save_text_new(text: str, path: Path, kind: DocumentKind) -> Path:
    """The same under a name that nothing has: ``path``, else with the first free number; raises ArtefactError.

    The name is taken in one step, so that of two that save at once each gets its own.
    """
    for target in numbered(path, kind.suffix):
        try:
            write_whole(target, text, mode=0o600, new=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise ArtefactError(_why_not_written(target, error, kind)) from error
        return target
    raise AssertionError("there is always another number")


def json_text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace").decode()  # what UTF-8 cannot hold, JSON can escape


def json_object(members: Mapping[str, str], indent: int) -> str:
    """A line for each member, whose values are JSON already."""
    between = ",\n" + " " * indent
    lines = (f"{json_text(name)}: {text}" for name, text in members.items())
    return "{\n" + " " * indent + between.join(lines) + "\n}"


def lined(fields: Mapping[str, Any], lists: Sequence[str]) -> str:
    """A line for each field, and for each item of ``lists``: what changed between two files is seen line by line."""
    lines = {name: json_text(value) for name, value in fields.items()}
    for name in lists:
        if fields[name]:
            lines[name] = "[\n  " + ",\n  ".join(json_text(each) for each in fields[name]) + "\n ]"
    return json_object(lines, indent=1) + "\n"


def load_record(
    source: Path,
    kind: DocumentKind,
    record: type[R],
    schema: int,
    migrations: Mapping[int, Callable[[Document], Document]],
) -> R:
    """The record saved at ``source``, of ``schema`` or an older one; raises ArtefactError."""
    text = text_of(content_of(source, kind), source, kind)
    current = migrated(parsed(text, source, kind), source, kind, schema, migrations)
    try:
        return record.model_validate(current)
    except ValidationError as error:
        raise ArtefactError(f"{source} {kind.is_not} {first_mistake(error)}; {others(kind)}") from error


def _why_not_written(target: Path, error: OSError, kind: DocumentKind) -> str:
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


# Reading ---------------------------------------------------------------------------------------------------


def is_one(word: str | os.PathLike[str], kind: DocumentKind) -> bool:
    """Whether ``word`` is the name of a document of this kind: by its ending, or by how what is there begins.

    A file of any name may be one, since ``--output`` may be anything.
    """
    if os.fspath(word).endswith(kind.suffix):
        return True
    try:
        beginning = read_up_to(Path(word), 64)
    except (OSError, ValueError):
        return False
    return beginning.lstrip(b"{ \t\r\n").startswith(f'"{kind.version}"'.encode())


def content_of(source: Path, kind: DocumentKind) -> bytes:
    """The bytes of a file that is to be of this kind; raises ArtefactError."""
    try:
        return read_up_to(source, LARGEST)
    except FileNotFoundError:
        raise ArtefactError(f"there is no file {source}{_suggestions(source, kind)}") from None
    except IsADirectoryError:
        raise ArtefactError(f"{source} {kind.folder}{_suggestions(source / 'x', kind)}") from None
    except OSError as error:
        raise ArtefactError(f"cannot read {source}: {error.strerror or error}") from error


def text_of(content: bytes, source: Path, kind: DocumentKind) -> str:
    """The same as text; raises ArtefactError for what is too large, or none."""
    if len(content) > LARGEST:
        raise ArtefactError(f"{source} {kind.is_not} it is larger than {LARGEST // 2**20} MB; {others(kind)}")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise ArtefactError(f"{source} {kind.is_not} it is not text") from None


def parsed(text: str, source: Path, kind: DocumentKind, read: Callable[[str], Any] = json.loads) -> Document:
    """The document in ``text``, as ``read`` finds it there; raises ArtefactError."""
    try:
        document = read(text)
    except json.JSONDecodeError as error:
        if text.lstrip().startswith("{"):
            where = f"line {error.lineno}, column {error.colno}"
            raise ArtefactError(f"{source} is damaged or cut short: its JSON breaks at {where}") from None
        raise ArtefactError(f"{source} {kind.is_not} it is not JSON") from None
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits; very many brackets
        what = "its brackets are nested too deep" if isinstance(error, RecursionError) else "a number is too long"
        raise ArtefactError(f"{source} {kind.is_not} {what}; {others(kind)}") from None
    if not isinstance(document, dict) or type(document.get(kind.version)) is not int:
        other = _other(document, kind) if isinstance(document, dict) else None
        if other is not None:
            raise ArtefactError(f"{source} is {other}, not a {kind.name}; {others(kind)}")
        raise ArtefactError(f"{source} {kind.is_not} it is JSON, but has no {kind.version}")
    return document


def migrated(
    document: Document,
    source: Path,
    kind: DocumentKind,
    newest: int,
    migrations: Mapping[int, Callable[[Document], Document]],
) -> Document:
    """The document in the ``newest`` schema, step by step; raises ArtefactError if a newer Stash made it."""
    version = int(document[kind.version])
    if version > newest:
        raise ArtefactError(
            f"{source} was made by a newer Stash (schema {version}; this one reads up to {newest}); "
            "upgrade Stash to read it"
        )
    while version < newest:
        step = migrations.get(version)
        if step is None:
            raise ArtefactError(f"{source} has schema {version}, which no Stash ever wrote")
        document = step(document)
        version += 1
        document = {**document, kind.version: version}
    return document


def _other(document: Document, kind: DocumentKind) -> str | None:
    return next((of for field, of in _OF_FIELD.items() if field in document and field != kind.version), None)


def others(kind: DocumentKind) -> str:
    return f"{kind.name}s are the *{kind.suffix} files that `{kind.command}` writes"


def _suggestions(source: Path, kind: DocumentKind, most: int = 5) -> str:
    try:
        found = [path for path in source.parent.glob(f"*{kind.suffix}") if path.is_file()]
        found.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        found = []
    if not found:
        return f"; `{kind.command}` writes one"
    more = "" if len(found) <= most else f" and {len(found) - most} more"
    return f"{kind.others} {', '.join(str(path) for path in found[:most])}{more}"
