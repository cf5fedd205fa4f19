"""Files of one JSON document each: the registry of their kinds, and the life that all of them share.

A document is written whole or not at all and read within bounds; what is missing, damaged, something else or of a
newer Stash is refused in one sentence. What a document holds is its feature's business: it hands a ``DocumentFile``
the record, its schema and how older ones become new.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import ValidationError

from stash.core.errors import ArtefactError
from stash.core.files import parse_json, read_up_to, write_whole
from stash.core.records.base import SUFFIX, Record, first_mistake

Document = dict[str, Any]
MAX_BYTES = 2**27
"""Of a file that is read: a profile of 1,024 ranks and 30 rounds takes 19 MB."""
R = TypeVar("R", bound=Record)


class DocumentKind(NamedTuple):
    """One kind of document: what it is called, what its files end in, what writes it, how it is recognised."""

    name: str
    suffix: str
    command: str
    version: str
    """The field that holds its schema."""
    mark: str
    """A field that distinguishes it from the kinds below it in ``KINDS`` with the same ``version``."""

    @property
    def plural(self) -> str:
        first, of, rest = self.name.partition(" of ")
        return f"{first}s{of}{rest}"

    @property
    def hint(self) -> str:
        return f"{self.plural} are the *{self.suffix} files that `{self.command}` writes"


PROFILE = DocumentKind("profile", SUFFIX, "stash profile", "schema_version", "workload")
PROBE = DocumentKind("probe", ".host.json", "stash probe", "schema_version", "hosts")
PLAN = DocumentKind("plan", ".plan.json", "stash recommend", "plan_schema", "goal")
FLEET_PLAN = DocumentKind(
    "plan of a fleet", ".plan.json", "stash spot plan", "fleet_schema", "pool"
)
FLEET_MODEL = DocumentKind("fitted model", ".fleet.json", "stash spot fit", "fleet_schema", "lone")
CURVE = DocumentKind("loss curve", ".curve.json", "stash spot learn", "curve_schema", "learned")
SPOT_LOG = DocumentKind("run's log", ".spotlog.json", "stash spot run", "log_schema", "events")
FIX = DocumentKind("record of a fix", ".fix.json", "stash fix", "fix_schema", "tried")
TRACE = DocumentKind("account of traces", ".trace.json", "stash trace", "trace_schema", "traced")
KINDS = (FIX, TRACE, PROFILE, PROBE, PLAN, FLEET_PLAN, FLEET_MODEL, CURVE, SPOT_LOG)


def kind_of(document: Document) -> DocumentKind | None:
    """Which kind a document is by its fields, or at least may be by its schema."""
    versioned = [kind for kind in KINDS if kind.version in document]
    return next((kind for kind in versioned if kind.mark in document), next(iter(versioned), None))


def is_one(word: str | os.PathLike[str], kind: DocumentKind) -> bool:
    """Whether ``word`` names a document of this kind: by its ending, or by how what is there begins.

    A file of any name may be one, since ``--output`` may be anything.
    """
    return os.fspath(word).endswith(kind.suffix) or begins_as(word, kind)


def begins_as(word: str | os.PathLike[str], kind: DocumentKind) -> bool:
    """Whether the file there begins with the schema of this kind."""
    return _read_beginning(word).lstrip(b"{ \t\r\n").startswith(f'"{kind.version}"'.encode())


WATCH_SUFFIX = ".watch.jsonl"


def is_watch_record(word: str) -> bool:
    """Whether a word names a record of a watched run, which is a log: by its ending, or by how it begins."""
    return word.endswith(WATCH_SUFFIX) or _read_beginning(word).startswith(b'{"kind":"watch"')


def _read_beginning(word: str | os.PathLike[str]) -> bytes:
    """Some bytes of a file; none of what cannot be read."""
    try:
        return read_up_to(Path(word), 64)
    except (OSError, ValueError):
        return b""


@dataclass(frozen=True)
class DocumentFile(Generic[R]):
    """Saves and loads the documents of one kind."""

    kind: DocumentKind
    record: type[R]
    schema: int = 1
    lists: tuple[str, ...] = ()
    """Fields of whose items each gets a line."""
    migrations: dict[int, Callable[[Document], Document]] = field(default_factory=dict)
    """``migrations[n]`` turns a document of schema n into one of schema n + 1."""
    contradiction: Callable[[R], str | None] = lambda record: None
    """What in a record, each field of which is right, cannot be."""
    write: Callable[[R], str] | None = None
    """Makes the text of a record whose fields are no lines of their own."""
    parse: Callable[[str], Any] = parse_json
    unpack: Callable[[Document], Document] = lambda document: document
    """Makes a document of the newest schema one that the record takes; raises ValueError."""

    def save(self, record: R, path: str | os.PathLike[str], new: bool = False) -> None:
        """Write ``record`` to ``path``, replacing it in one step, for its owner alone; raises ArtefactError.

        It is complete on disk before it takes the name: whoever reads ``path`` at any moment sees the old document
        or the new one, also after a power cut. A ``new`` one replaces nothing: raises FileExistsError.
        """
        target = Path(path)
        try:
            write_whole(target, self.format_record(record), mode=0o600, new=new)
        except OSError as error:
            if new and isinstance(error, FileExistsError):
                raise
            raise ArtefactError(_why_not_written(target, error, self.kind)) from error

    def save_new(self, record: R, path: str | os.PathLike[str]) -> Path:
        """The same under a name that nothing has: ``path``, else with the first free number; raises ArtefactError.

        The name is taken in one step, so that of two that save at once each gets its own.
        """
        for target in iter_free_names(Path(path), self.kind.suffix):
            with contextlib.suppress(FileExistsError):
                self.save(record, target, new=True)
                return target
        raise AssertionError("there is always another number")

    def format_record(self, record: R) -> str:
        """What a file of ``record`` holds: a line for each field, and for each item of ``lists``."""
        if self.write is not None:
            return self.write(record)
        fields = record.model_dump(mode="json")
        lines = {name: json_text(value) for name, value in fields.items()}
        for name in self.lists:
            if fields[name]:
                items = ",\n  ".join(map(json_text, fields[name]))
                lines[name] = f"[\n  {items}\n ]"
        return json_object(lines, indent=1) + "\n"

    def load(self, path: str | os.PathLike[str]) -> R:
        """The record saved at ``path``, of this or any older schema; raises ArtefactError."""
        source = Path(path)
        content = read_content(source, self.kind)
        return self.make_record(parse_document(content, source, self.kind, self.parse), source)

    def make_record(self, document: Document, source: Path) -> R:
        """The record of a document of any schema; raises ArtefactError."""
        kind = self.kind
        try:
            newest = migrate_document(document, source, kind, self.schema, self.migrations)
            record = self.record.model_validate(self.unpack(newest))
            why = self.contradiction(record)
        except ValueError as error:  # pydantic's ValidationError is one
            _refuse_other(document, source, kind)
            why = first_mistake(error) if isinstance(error, ValidationError) else str(error)
        if why is not None:
            raise ArtefactError(f"{source} is not a {kind.name}: {why}; {kind.hint}")
        return record

    def is_one(self, word: str | os.PathLike[str]) -> bool:
        """Whether ``word`` names such a document: by its ending, or by how what is there begins."""
        return is_one(word, self.kind)


def iter_free_names(path: Path, suffix: str) -> Iterator[Path]:
    """``run.stash.json``, ``run-2.stash.json`` and so on, for ever."""
    ending = suffix if path.name.endswith(suffix) else path.suffix
    stem = path.name.removesuffix(ending)
    numbers = itertools.chain([""], (f"-{n}" for n in itertools.count(2)))
    return (path.with_name(f"{stem}{number}{ending}") for number in numbers)


def _why_not_written(target: Path, error: OSError, kind: DocumentKind) -> str:
    folder = target.parent
    if target.is_dir():
        return f"cannot write the {kind.name} to {target}: it is a folder; name a file in it"
    if not folder.is_dir():
        return f"cannot write {target}: the folder {folder} does not exist; create it with `mkdir -p {folder}`"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"cannot write {target}: no permission to write in {folder}; choose another file with --output"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"cannot write {target}: no space left; free some, or choose another disk with --output"
        )
    return f"cannot write {target}: {error.strerror or error}; choose another file with --output"


def json_text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # what UTF-8 cannot hold, JSON can escape
    return text.encode("utf-8", "backslashreplace").decode()


def json_object(members: Mapping[str, str], indent: int) -> str:
    """A line for each member, whose values are JSON already."""
    between = ",\n" + " " * indent
    lines = (f"{json_text(name)}: {text}" for name, text in members.items())
    return "{\n" + " " * indent + between.join(lines) + "\n}"


def read_content(source: Path, kind: DocumentKind) -> bytes:
    """The bytes of a file that is to be of this kind; raises ArtefactError."""
    try:
        return read_up_to(source, MAX_BYTES)
    except FileNotFoundError:
        raise ArtefactError(
            f"there is no file {source}{_suggestions(source, kind)}", code="artefact_missing"
        ) from None
    except IsADirectoryError:
        suggestions = _suggestions(source / "x", kind)
        raise ArtefactError(f"{source} is a folder, not a {kind.name}{suggestions}") from None
    except OSError as error:
        raise ArtefactError(f"cannot read {source}: {error.strerror or error}") from error


def parse_document(
    content: bytes, source: Path, kind: DocumentKind, read: Callable[[str], Any] = parse_json
) -> Document:
    """The document in a file's bytes, as ``read`` finds it there; raises ArtefactError."""
    is_not = f"{source} is not a {kind.name}:"
    if len(content) > MAX_BYTES:
        raise ArtefactError(f"{is_not} it is larger than {MAX_BYTES // 2**20} MB; {kind.hint}")
    try:
        text = content.decode("utf-8")
        document = read(text)
    except UnicodeDecodeError:
        raise ArtefactError(f"{is_not} it is not text") from None
    except json.JSONDecodeError as error:
        if text.lstrip().startswith("{"):
            where = f"line {error.lineno}, column {error.colno}"
            broken = f"{source} is damaged or cut short: its JSON breaks at {where}"
            raise ArtefactError(broken, code="artefact_damaged") from None
        raise ArtefactError(f"{is_not} it is not JSON") from None
    except ValueError as error:
        raise ArtefactError(f"{is_not} {error}; {kind.hint}") from None
    if not isinstance(document, dict) or type(document.get(kind.version)) is not int:
        if isinstance(document, dict):
            _refuse_other(document, source, kind)
        raise ArtefactError(f"{is_not} it is JSON, but has no {kind.version}; {kind.hint}")
    return document


def _refuse_other(document: Document, source: Path, kind: DocumentKind) -> None:
    """Raise ArtefactError for a document of another kind."""
    other = kind_of(document)
    if other not in (None, kind) and (other.mark in document or kind.version not in document):
        raise ArtefactError(
            f"{source} is a {other.name} of `{other.command}`, not a {kind.name}; {kind.hint}",
            code="artefact_kind",
        )


def migrate_document(
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
            "upgrade Stash to read it",
            code="artefact_newer",
        )
    while version < newest:
        step = migrations.get(version)
        if step is None:
            raise ArtefactError(f"{source} has schema {version}, which no Stash ever wrote")
        version += 1
        document = {**step(document), kind.version: version}
    return document


_MOST = 5
"""Files that are named instead of one that is not there."""


def _suggestions(source: Path, kind: DocumentKind) -> str:
    try:
        found = [path for path in source.parent.glob(f"*{kind.suffix}") if path.is_file()]
        found.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        found = []
    if not found:
        return f"; `{kind.command}` writes one"
    more = "" if len(found) <= _MOST else f" and {len(found) - _MOST} more"
    return f"; {kind.plural} there, newest first: {', '.join(map(str, found[:_MOST]))}{more}"
