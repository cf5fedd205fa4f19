"""One store: artefacts are put, listed, found and verified; with each a digest of what is derived from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from stash.core import artefact as artefacts
from stash.core.artefact import Artefact
from stash.core.documents import MAX_BYTES
from stash.core.errors import ArtefactError, StashError, StoreError
from stash.core.files import is_half, parse_json
from stash.core.records.base import SUFFIX
from stash.core.records.profile import Profile
from stash.core.secrets import mask_text
from stash.store import storage
from stash.store.schema import DERIVED, VERSION, TableRow, TableRows, fits
from stash.store.storage import ArtefactStorage, id_of

# A digest is what is derived from one artefact, kept next to it so that it need not be derived again: a cache, never
# the truth. One that is of another version, or that does not hold what it should, counts as missing.

HEAD = "artefacts"


def path_of(name: str) -> str:
    """The path of the digest of the artefact called ``name``."""
    return f"index/digests/{name}.jsonl"


def encode_digest(name: str, rows: TableRows) -> bytes:
    """The file of a digest."""
    document = {
        "version": VERSION,
        "file": name,
        **{table: rows.get(table, []) for table in DERIVED},
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "backslashreplace"
    )


def rows_of(name: str, content: bytes | None) -> TableRows | None:
    """The rows of all tables but blocks in a digest; ``None`` if there is no good one."""
    try:
        found = parse_json(content or b"")
    except ValueError:
        return None
    if not isinstance(found, dict) or (found.get("version"), found.get("file")) != (VERSION, name):
        return None
    for table in DERIVED:
        rows = found.get(table)
        if not isinstance(rows, list) or not all(
            fits(table, row) and row[0] == id_of(name) for row in rows
        ):
            return None
    if [row[1] for row in found[HEAD]] != [name]:
        return None
    return {table: found[table] for table in DERIVED}


# An artefact is put first and its digest after it: should the second fail, nothing is lost.


class Contents(NamedTuple):
    """The names of a store's files."""

    stored: list[str]
    """Artefacts whose names the store gave, the newest first."""
    loose: list[str]
    """Artefacts under names of their own, the newest file first."""
    others: list[str]
    """What is called like no artefact."""


class Store:
    """Artefacts in a storage. Raises StoreError where that does, and UserError for what people mistype."""

    def __init__(self, storage: ArtefactStorage) -> None:
        self.storage = storage
        self.unreadable: dict[str, str] = {}
        """Why, by name, of artefacts met so far."""

    @property
    def url(self) -> str:
        """The store's address as typed, without a password, for sentences."""
        return mask_text(self.storage.url)

    def put(self, content: bytes, source: str) -> str:
        """Keep an artefact's bytes as they are; its name here. Raises ArtefactError if they are none."""
        found = artefacts.decode_artefact(content, source)
        suffix = artefacts.file_of(found).kind.suffix
        name = storage.name_of(content, found.created, suffix)
        self.storage.put(name, content, new=True)
        with suppress(StashError):  # a cache: whoever reads the artefact derives the same
            self._put_digest(name, _derive_rows(name, found))
        return name

    def contents(self) -> Contents:
        """What there is; one round trip, but for files under names of their own."""
        found = self.storage.names()
        called = [name for name in found if storage.is_artefact(name)]
        stored = sorted((name for name in called if storage.stored_id(name)), reverse=True)
        loose = [name for name in called if not storage.stored_id(name)]
        if len(loose) > 1:
            loose.sort(key=self.storage.modified_seconds, reverse=True)
        return Contents(stored, loose, [name for name in found if not storage.is_artefact(name)])

    def find(self, word: str) -> str:
        """The name of the artefact that ``word`` means: an id, a file's stem, or a beginning that is no other's."""
        there = self.contents()
        return storage.match_name(word, [*there.stored, *there.loose], self.url)

    def load(self, name: str) -> Artefact:
        """The artefact of that name; raises ArtefactError if it is not what its name says, or cannot be read."""
        try:
            content = self.storage.read(name, MAX_BYTES)
        except FileNotFoundError:
            raise StoreError(f"{name} is gone from {self.url}", code="artefact_missing") from None
        if storage.stored_id(name) not in (None, storage.digest_of(content)):
            raise ArtefactError(
                f"{self.url}/{name} is damaged: its content is not what its name says; "
                f"`stash store verify {self.url}` looks at all",
                code="artefact_damaged",
            )
        return artefacts.decode_artefact(content, Path(name))

    def heads(self, wanted: Sequence[str]) -> Iterator[TableRow]:
        """The row of ``artefacts`` of each; those that cannot be read are left out, and named in ``unreadable``."""
        return (rows[HEAD][0] for rows in self.rows(wanted))

    def rows(self, wanted: Sequence[str]) -> Iterator[TableRows]:
        """The same with the rows of all tables but blocks. What is derived again is kept, if it can be."""
        paths = {path_of(name): name for name in wanted if storage.stored_id(name)}
        for path, content in self.storage.read_each(list(paths)):
            name = paths[path]
            rows = rows_of(name, content)
            if rows is None and (rows := self._derive(name)):
                with suppress(StoreError):
                    self._put_digest(name, rows)
            if rows:
                yield rows
        for name in wanted:
            # one under a name of its own may change, so no digest is kept
            if not storage.stored_id(name) and (rows := self._derive(name)):
                yield rows

    def blocks(self, wanted: Sequence[str]) -> Iterator[list[TableRow]]:
        """The rows of ``blocks`` of each profile, from the artefacts."""
        from stash.store.rows import block_rows

        for name in wanted:
            if name.endswith(SUFFIX):
                with self._note_unreadable(name):
                    found = self.load(name)
                    if isinstance(found, Profile):
                        yield block_rows(found, id_of(name))

    def _derive(self, name: str) -> TableRows | None:
        with self._note_unreadable(name):
            return _derive_rows(name, self.load(name))
        return None

    @contextmanager
    def _note_unreadable(self, name: str) -> Iterator[None]:
        try:
            yield
        except StashError as error:
            self.unreadable[name] = str(error)

    def _put_digest(self, name: str, rows: TableRows) -> None:
        self.storage.put(path_of(name), encode_digest(name, rows), new=False)


def _derive_rows(name: str, found: Artefact) -> TableRows:
    from stash.store.rows import digest_rows  # large, and a list reads digests that are there

    return digest_rows(found, storage.id_of(name), name)


class Suspect(NamedTuple):
    """A file that is not what a store should hold."""

    name: str
    why: str


def verify_store(
    store: Store, progress: Callable[[int, int], None] = lambda done, of: None
) -> tuple[int, list[Suspect]]:
    """How many artefacts are whole, and every file that is not what it should be. Changes and removes nothing.

    ``progress`` is called with how many of how many were read.
    """
    contents = store.contents()
    artefacts_there = [*contents.stored, *contents.loose]
    half = "its writer was ended before it was whole; nothing reads it"
    other = "it is called like no artefact; nothing reads it"
    suspects = [Suspect(name, half if is_half(name) else other) for name in contents.others]
    for done, name in enumerate(artefacts_there, 1):
        if why := _what_is_wrong(store, name):
            suspects.append(Suspect(name, why))
        progress(done, len(artefacts_there))
    return len(artefacts_there) + len(contents.others) - len(suspects), suspects


def _what_is_wrong(store: Store, name: str) -> str:
    """With an artefact, if anything is; its content is read once."""
    try:
        content = store.storage.read(name, MAX_BYTES)
        found = artefacts.decode_artefact(content, name)
    except FileNotFoundError:
        return ""  # removed meanwhile
    except StashError as error:
        return str(error)
    known = storage.stored_id(name)
    if known not in (None, storage.digest_of(content)):
        return "its content is not what its name says: it was changed after it was put here"
    suffix = artefacts.file_of(found).kind.suffix
    if not name.endswith(suffix) or (
        known is not None and name != storage.name_of(content, found.created, suffix)
    ):
        return "its name is not the one that a store gives to what is in it"
    return ""
