"""The tables that a query names, as JSON lines that DuckDB reads: written for one query, from digests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from stash.core.errors import StoreError, one_line
from stash.store.schema import DERIVED, TABLES, TableRow
from stash.store.store import Store

BLOCKS = "blocks"
_MEMORY, _DISK = "1GiB", "4GiB"
"""Of DuckDB; what is beyond its memory goes to its temporary folder, as far as that may grow."""


@contextmanager
def make_workplace() -> Iterator[Path]:
    """A folder for one query, gone afterwards; raises StoreError where there is no room for one."""
    try:
        folder = TemporaryDirectory(prefix="stash-store-")
    except OSError as error:
        raise StoreError(
            f"no folder for temporary files: {one_line(error)}; name one with TMPDIR"
        ) from None
    with folder as name:
        yield Path(name)


def quote(text: object) -> str:
    """A text as SQL has it."""
    return "'" + str(text).replace("'", "''") + "'"


def duckdb_settings(temporary: Path) -> dict[str, str | bool | int | float | list[str]]:
    """Settings of a database in memory that spills to ``temporary`` and fetches nothing."""
    return {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "max_temp_directory_size": _DISK,
        "memory_limit": _MEMORY,
        "preserve_insertion_order": "false",
        "temp_directory": str(temporary),
        "threads": "2",
    }


def write_tables(
    store: Store, tables: Iterable[str], temporary: Path, progress: Callable[[int, int], None]
) -> list[str]:
    """Write the rows of these ``tables`` into ``temporary``; the SQL statements that make views of them.

    ``progress`` is called with how many artefacts of how many were read. Raises StoreError.
    """
    contents = store.contents()
    wanted = [*contents.stored, *contents.loose]
    derived = [table for table in tables if table in DERIVED]
    files = {table: _TableFile(temporary, table) for table in tables}
    try:
        if derived:
            for done, rows in enumerate(store.rows(wanted), 1):
                for table in derived:
                    files[table].add(rows[table])
                progress(done, len(wanted))
        if BLOCKS in files:
            for blocks in store.blocks(wanted):
                files[BLOCKS].add(blocks)
        return [file.close() for file in files.values()]
    except OSError as error:
        raise StoreError(
            f"cannot read {store.url} by way of {temporary}: {error.strerror or error}"
        ) from None


class _TableFile:
    """JSON lines of one table, an array a row."""

    def __init__(self, folder: Path, table: str) -> None:
        self._table = table
        self._path = folder / f"{table}.jsonl"
        self._lines = self._path.open("w", encoding="utf-8", errors="backslashreplace")
        self._longest = 2**20

    def add(self, rows: Iterable[TableRow]) -> None:
        names = [column.name for column in TABLES[self._table]]
        for row in rows:
            line = json.dumps(dict(zip(names, row, strict=True))) + "\n"
            self._longest = max(self._longest, len(line))
            self._lines.write(line)

    def close(self) -> str:
        """The statement that makes a view of what was written."""
        self._lines.close()
        columns = ", ".join(
            f"{quote(column.name)}: {quote(column.kind)}" for column in TABLES[self._table]
        )
        options = f"columns={{{columns}}}, format='newline_delimited', maximum_object_size={self._longest}"
        return (
            f"CREATE VIEW {self._table} AS SELECT * FROM read_json({quote(self._path)}, {options})"
        )
