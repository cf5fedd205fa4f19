"""``stash.frame``: profiles and probes as a pandas or polars frame, with the columns of a store's tables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from stash.core.artefact import load_any
from stash.core.errors import StoreError, UserError
from stash.core.imports import require_package
from stash.core.records.profile import Profile
from stash.store.rows import block_rows, digest_rows
from stash.store.schema import TABLES, TableRow, TableRows
from stash.store.storage import stem
from stash.store.storing import opened

_LIBRARIES = ("pandas", "polars")
Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def frame(paths: Paths, table: str = "profiles", library: str = "pandas") -> Any:
    """A frame of the rows of ``table`` (see docs/format.md), of files, folders and stores' URLs.

    ``library`` is ``pandas`` or ``polars``. The column ``id`` is a file's name without its ending, or a store's id.
    Raises UserError for a table or a library that is not there, ArtefactError for a file that cannot be read, and
    StoreError where one in a folder cannot.
    """
    if table not in TABLES:
        raise UserError(f"there is no table {table!r}; there are {', '.join(TABLES)}")
    if library not in _LIBRARIES:
        raise UserError(f"library={library!r}: it is one of {', '.join(_LIBRARIES)}")
    each = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    rows = [row for path in each for row in _frame_rows(os.fspath(path), table)]
    columns = [column.name for column in TABLES[table]]
    return _pandas(rows, table, columns) if library == "pandas" else _polars(rows, table, columns)


def _frame_rows(path: str, table: str) -> Iterator[TableRow]:
    if "://" in path or Path(path).is_dir():
        yield from _of_store(path, table)
        return
    found, name = load_any(path), Path(path).name
    if table != "blocks":
        yield from digest_rows(found, stem(name), name)[table]
    elif isinstance(found, Profile):
        yield from block_rows(found, stem(name))


def _of_store(url: str, table: str) -> Iterator[TableRow]:
    store = opened(url)
    contents = store.contents()
    wanted = [*contents.stored, *contents.loose]
    parts: Iterable[TableRows] = (
        ({table: rows} for rows in store.blocks(wanted)) if table == "blocks" else store.rows(wanted)
    )
    for rows in parts:
        yield from rows[table]
    if store.unreadable:
        raise StoreError("; ".join(store.unreadable.values()))


def _pandas(rows: list[TableRow], table: str, columns: list[str]) -> Any:
    """With nullable types, so that what is unknown is ``<NA>`` and whole numbers stay whole."""
    pandas = require_package("pandas", "stash.frame")
    types = {"VARCHAR": "string", "DOUBLE": "Float64", "BIGINT": "Int64", "BOOLEAN": "boolean"}
    return pandas.DataFrame(rows, columns=columns).astype(
        {column.name: types[column.kind] for column in TABLES[table]}
    )


def _polars(rows: list[TableRow], table: str, columns: list[str]) -> Any:
    polars = require_package("polars", "stash.frame")
    types = {"VARCHAR": polars.String, "DOUBLE": polars.Float64, "BIGINT": polars.Int64, "BOOLEAN": polars.Boolean}
    schema = {column.name: types[column.kind] for column in TABLES[table]}
    return polars.DataFrame(rows, schema=schema, orient="row")
