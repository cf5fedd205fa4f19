"""One store: artefacts are put, listed, found by what people type, and read; each with what is derived from it.

An artefact is put first and its digest after it: should the second fail, nothing is lost. Whoever puts the same
artefact at the same time puts the same bytes under the same name, so nobody needs a lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from stash.base.errors import ArtefactError, StashError, StoreError
from stash.base.records import Probe, Profile
from stash.base.secrets import masked_text
from stash.keep import artefact as artefacts
from stash.keep.documents import LARGEST
from stash.keep.store import digests, names
from stash.keep.store.digests import Deriver
from stash.keep.store.shelves import StoreShelf
from stash.keep.store.tables import TableRow, TableRows


class Contents(NamedTuple):
    """The names of a store's files."""

    stored: list[str]
    """Artefacts whose names the store gave, the newest first."""
    loose: list[str]
    """Artefacts under names of their own, the newest file first."""
    others: list[str]
    """What is called like no artefact."""


class Store:
    """Artefacts on a shelf. Raises StoreError where the shelf does, and UserError for what people mistype."""

    def __init__(self, shelf: StoreShelf, deriver: Deriver) -> None:
        self.shelf, self.deriver = shelf, deriver
        self.unreadable: dict[str, str] = {}
        """Why, by name, of artefacts met so far."""

    @property
    def url(self) -> str:
        """As people typed it, to be named in sentences: without a password in it."""
        return masked_text(self.shelf.url)

    def put(self, content: bytes, source: str) -> str:
        """Keep an artefact's bytes as they are; its name here. Raises ArtefactError if they are none."""
        found = artefacts.from_bytes(content, source)
        suffix = names.SUFFIXES[isinstance(found, Probe)]
        name = names.name_of(content, found.created, suffix)
        self.shelf.put(name, content, new=True)
        with suppress(StashError):  # a cache: whoever reads the artefact derives the same
            self._put_digest(name, self._derived(name, found))
        return name

    def contents(self) -> Contents:
        """What there is; one round trip, but for files under names of their own."""
        found = self.shelf.names()
        called = [name for name in found if names.is_artefact(name)]
        stored = sorted((name for name in called if names.stored(name)), reverse=True)
        loose = [name for name in called if not names.stored(name)]
        if len(loose) > 1:
            loose.sort(key=self.shelf.modified, reverse=True)
        return Contents(stored, loose, [name for name in found if not names.is_artefact(name)])

    def find(self, word: str) -> str:
        """The name of the artefact that ``word`` means: an id, a file's stem, or a beginning that is no other's."""
        there = self.contents()
        return names.found(word, [*there.stored, *there.loose], self.url)

    def load(self, name: str) -> Profile | Probe:
        """The artefact of that name; raises ArtefactError if it is not what its name says, or cannot be read."""
        try:
            content = self.shelf.read(name, LARGEST)
        except FileNotFoundError:
            raise StoreError(f"{name} is gone from {self.url}") from None
        known = names.stored(name)
        if known is not None and names.digest_of(content) != known.id:
            raise ArtefactError(
                f"{self.url}/{name} is damaged: its content is not what its name says; "
                f"`stash store verify {self.url}` looks at all"
            )
        return artefacts.from_bytes(content, Path(name))

    def heads(self, wanted: Sequence[str]) -> Iterator[TableRow]:
        """The row of ``artefacts`` of each; those that cannot be read are left out, and said in ``unreadable``."""
        for name, content in self._digests(wanted):
            head = digests.head_of(name, content)
            if head is None:
                rows = self._anew(name)
                if rows is None:
                    continue
                (head,) = rows[digests.HEAD]
            yield head

    def rows(self, wanted: Sequence[str], trust: bool = True) -> Iterator[TableRows]:
        """The same with the rows of all tables but blocks. What is derived anew is kept, if it can be.

        Without ``trust``, all of it is derived anew.
        """
        for name, content in self._digests(wanted) if trust else ((name, None) for name in wanted):
            rows = digests.rows_of(name, content)
            if rows is None:
                rows = self._anew(name)
                if rows is None:
                    continue
                if names.stored(name):
                    with suppress(StoreError):
                        self._put_digest(name, rows)
            yield rows

    def blocks(self, wanted: Sequence[str]) -> Iterator[list[TableRow]]:
        """The rows of ``blocks`` of each profile, from the artefacts."""
        for name in wanted:
            if not name.endswith(names.SUFFIXES[0]):
                continue
            try:
                found = self.load(name)
            except StashError as error:
                self.unreadable[name] = str(error)
                continue
            if isinstance(found, Profile):
                yield self.deriver.blocks(found, names.id_of(name))

    def _digests(self, wanted: Sequence[str]) -> Iterator[tuple[str, bytes | None]]:
        paths = {digests.path_of(name): name for name in wanted if names.stored(name)}
        for path, content in self.shelf.read_each(list(paths)):
            yield paths[path], content
        for name in wanted:
            if not names.stored(name):  # it may change, so no digest is kept
                yield name, None

    def _anew(self, name: str) -> TableRows | None:
        try:
            return self._derived(name, self.load(name))
        except StashError as error:
            self.unreadable[name] = str(error)
            return None

    def _derived(self, name: str, found: Profile | Probe) -> TableRows:
        return self.deriver.digest(found, names.id_of(name), name)

    def _put_digest(self, name: str, rows: TableRows) -> None:
        self.shelf.put(digests.path_of(name), digests.written(name, rows), new=False)
