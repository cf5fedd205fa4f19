"""Where a store's files lie, a folder or whatever fsspec reaches, and what an artefact is called there."""

from __future__ import annotations

import errno
import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from stash.core.documents import FIX, PROBE, TRACE
from stash.core.errors import StashError, StoreError, UserError, one_line
from stash.core.files import read_up_to, write_whole
from stash.core.imports import require_package
from stash.core.printable import printable_line
from stash.core.records.base import SUFFIX

_OBJECTS = frozenset(("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci"))
"""Protocols without folders: making one there would make a bucket, of whatever name was mistyped."""
_BATCH_SIZE = 500
"""Files asked for together."""
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs"}
"""What reaches a protocol."""


def open_storage(url: str) -> ArtefactStorage:
    """The folder or fsspec URL; looks nothing up yet. Raises UserError for a URL that nothing installed can reach."""
    if not url:
        raise UserError("a store is a folder or a URL, like ~/runs or s3://bucket/runs")
    fsspec = require_package("fsspec", "a store")
    if "://" not in url and "::" not in url:
        return ArtefactStorage(
            fsspec.filesystem("file"), str(Path(url).expanduser().absolute()), url
        )
    protocol = url.split("://", maxsplit=1)[0]
    try:
        system, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        how = (
            f"type `pip install {_PACKAGES[protocol]}`"
            if protocol in _PACKAGES
            else one_line(error)
        )
        raise UserError(f"{url} needs a package that is not installed: {how}") from None
    except Exception as error:  # each protocol's package has errors of its own
        raise UserError(f"{url} is no store that can be reached: {one_line(error)}") from None
    return ArtefactStorage(system, str(root).rstrip("/"), url)


class ArtefactStorage:
    """A folder of whatever fsspec reaches: this machine's disk, S3, Google Cloud Storage, SFTP …

    A file is whole or not there: an object is put in one request, a file of this machine takes its name in one step.
    A file's name may have folders in it. All methods raise StoreError.
    """

    def __init__(self, system: Any, root: str, url: str) -> None:
        self.system = system
        self.root = root
        self.url = url

    def names(self) -> list[str]:
        """The files directly in it, in no order; raises UserError if there is no such folder."""
        self.system.invalidate_cache()
        with self._translate_errors("read"):
            try:
                found = self.system.ls(self.root, detail=True)
            except FileNotFoundError:
                raise UserError(f"there is no store {self.url}, or nothing in it yet") from None
        files = [str(each["name"]) for each in found if each.get("type") == "file"]
        if files == [self.root]:
            raise UserError(f"{self.url} is a file; a store is a folder or a URL")
        return [file.rsplit("/", 1)[-1] for file in files]

    def modified_seconds(self, name: str) -> float:
        """When a file was written last, in seconds since 1970; 0 where that is unknown."""
        with suppress(Exception):  # not every protocol knows
            return float(self.system.modified(self._path(name)).timestamp())
        return 0.0

    def read(self, name: str, most: int) -> bytes:
        """A file's content, of a longer one ``most`` bytes and one more; raises FileNotFoundError."""
        with self._translate_errors("read", name):
            return bytes(self.system.cat_file(self._path(name), start=0, end=most + 1))

    def read_each(self, names: Sequence[str]) -> Iterator[tuple[str, bytes | None]]:
        """The content of many files, in no order; ``None`` of those that cannot be read."""
        for first in range(0, len(names), _BATCH_SIZE):
            paths = {self._path(name): name for name in names[first : first + _BATCH_SIZE]}
            with self._translate_errors("read"):
                contents = self.system.cat(list(paths), on_error="omit")
            for path, name in paths.items():
                yield name, contents.get(path)

    def put(self, name: str, content: bytes, new: bool) -> None:
        """Place a file whole. A ``new`` one never changes: only what is damaged there is replaced.

        Any other is of a cache, which a power cut may take. A store that Stash makes is its owner's alone, like the
        artefacts; share it by the folder's permissions. Raises UserError if the store is no folder.
        """
        with self._translate_errors("write"):
            if self._is_local:
                self._put_file(Path(self._path(name)), content, new)
            else:
                self._put_object(self._path(name), content, new)

    def _put_file(self, path: Path, content: bytes, new: bool) -> None:
        """By a name of its own first: fsspec would show a file of this machine before it is whole."""
        root = Path(self.root)
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except FileExistsError:
            raise UserError(f"{self.url} is no folder; a store is a folder or a URL") from None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise StoreError(
                f"cannot write the store {self.url}: {path.parent} is no folder"
            ) from None
        try:
            write_whole(path, content, new=new, lasting=new)
        except FileExistsError:
            if read_up_to(path, len(content)) != content:
                write_whole(path, content)

    def _put_object(self, path: str, content: bytes, new: bool) -> None:
        if new:
            # one that was cut short is put again
            with suppress(FileNotFoundError):
                if self.system.info(path).get("size") == len(content):
                    return
        if not _OBJECTS.intersection(self._protocols):
            self.system.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        try:
            self.system.pipe_file(path, content)
        except FileNotFoundError as error:
            raise StoreError(f"cannot write the store {self.url}: {one_line(error)}") from None

    def place(self, name: str) -> str:
        """Where a file is, in one way of writing it."""
        path = self._path(name)
        return (
            str(Path(path).resolve()) if self._is_local else str(self.system.unstrip_protocol(path))
        )

    @property
    def _protocols(self) -> tuple[str, ...]:
        names = self.system.protocol
        return (names,) if isinstance(names, str) else tuple(names)

    @property
    def _is_local(self) -> bool:
        return "file" in self._protocols

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    @contextmanager
    def _translate_errors(self, what: str, name: str = "") -> Iterator[None]:
        try:
            yield
        except StashError:
            raise
        except Exception as error:  # every protocol's package has errors of its own, of any base
            if isinstance(error, FileNotFoundError) and what == "read":
                raise
            why = one_line(error)
            if isinstance(error, OSError):
                why = _REASONS.get(error.errno or 0) or error.strerror or why
            place = f"{self.url}: {name}" if name and self._is_local else self.url
            raise StoreError(f"cannot {what} the store {place}: {why}") from None


_REASONS = {
    errno.EACCES: "no permission",
    errno.EPERM: "no permission",
    errno.EROFS: "it is mounted for reading only",
    errno.ENOSPC: "no space left",
    errno.EDQUOT: "no space left in your quota",
    errno.ENOENT: "it is gone",
    errno.ESTALE: "it is gone",
}


# An artefact is called by when it was made, so that names sort, and by what is in it: the same artefact has the same
# name wherever it is put; a different one never has.

SUFFIXES = (SUFFIX, PROBE.suffix, FIX.suffix, TRACE.suffix)
_RAW_TRACES = ".pt.trace.json"
"""What torch.profiler calls its own files, which only end as ours do."""
SHOWN = 10
"""Characters of an id in a list."""
_ID = 24
"""Hexadecimal digits of SHA-256: of a million artefacts, two share one with a chance of 10^-17."""
_UNDATED = "00000000T000000Z"
"""For an artefact whose date cannot be read."""
_NAME = re.compile(
    rf"\d{{8}}T\d{{6}}Z-(?P<id>[0-9a-f]{{{_ID}}})(?:{'|'.join(map(re.escape, SUFFIXES))})"
)


def name_of(content: bytes, created: str, suffix: str) -> str:
    """The name of an artefact made at ``created`` (ISO 8601) whose file holds ``content``."""
    return f"{_moment(created)}-{digest_of(content)}{suffix}"


def digest_of(content: bytes) -> str:
    """An artefact's id."""
    return hashlib.sha256(content).hexdigest()[:_ID]


def stored_id(name: str) -> str | None:
    """The id in a name that a store gave; ``None`` of a file that was put there under a name of its own."""
    found = _NAME.fullmatch(name)
    return None if found is None else found["id"]


def is_artefact(name: str) -> bool:
    """Whether a file is called like an artefact."""
    return name.endswith(SUFFIXES) and not name.startswith(".") and not name.endswith(_RAW_TRACES)


def id_of(name: str) -> str:
    """What people call the artefact of this name: its id, or a file's own name without its ending."""
    return stored_id(name) or name_stem(name)


def name_stem(name: str) -> str:
    """A file's name without the ending of its kind."""
    return re.sub(rf"(?:{'|'.join(map(re.escape, SUFFIXES))})$", "", name)


def match_name(word: str, names: Sequence[str], where: str) -> str:
    """The one of ``names`` that ``word`` means: a name, an id or a file's stem, or what only one begins with.

    Raises UserError where it is none's beginning, or that of several.
    """
    if word in names:
        return word
    whole = [name for name in names if id_of(name) == word or name_stem(name) == word]
    begins = whole or [
        name for name in names if word and (id_of(name).startswith(word) or name.startswith(word))
    ]
    if len(begins) == 1:
        return begins[0]
    shown = printable_line(word, 200)
    if not begins:
        raise UserError(f"{where} has no artefact {shown}; `stash list {where}` lists all")
    listed = ", ".join(printable_line(id_of(name), 100) for name in begins[:4])
    more = f" and {len(begins) - 4} more" if len(begins) > 4 else ""
    raise UserError(f"{shown} may be {listed}{more} of {where}; type more of one of them")


def _moment(created: str) -> str:
    try:
        moment = datetime.fromisoformat(created.replace("Z", "+00:00"))
        return moment.astimezone(timezone.utc).strftime("%Y%m%dT%H%M%SZ").rjust(len(_UNDATED), "0")
    except (ValueError, OverflowError):
        return _UNDATED
