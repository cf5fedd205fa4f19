"""Rows in files that DuckDB reads: written part by part, so that memory holds some thousand artefacts' at most.

Rows pass through a file of JSON lines, which needs nothing but DuckDB itself. Knows nothing of stores.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from stash.base.errors import StoreError, UserError, one_line
from stash.keep.store.tables import TABLES, TableRow

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_MEMORY = "256MB"
"""Of DuckDB; what is beyond goes to its temporary folder."""


@contextmanager
def workplace() -> Iterator[tuple[DuckDBPyConnection, Path]]:
    """A database and a folder of its own, both gone afterwards; raises StoreError where there is no room for one."""
    try:
        folder = TemporaryDirectory(prefix="stash-store-")
    except OSError as error:
        raise StoreError(f"no folder for temporary files: {one_line(error)}; name one with TMPDIR") from None
    with folder as name, _connected(Path(name)) as connection:
        yield connection, Path(name)


def _connected(temporary: Path) -> DuckDBPyConnection:
    """A database in memory that spills to ``temporary`` and fetches nothing; raises UserError without DuckDB."""
    try:
        import duckdb
    except ImportError:
        raise UserError("this needs DuckDB, which is not installed: pip install duckdb") from None
    return duckdb.connect(":memory:", config=settings(temporary))


def settings(temporary: Path) -> dict[str, str | bool | int | float | list[str]]:
    """Of a database in memory that spills to ``temporary`` and fetches nothing."""
    return {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "memory_limit": _MEMORY,
        "preserve_insertion_order": "false",
        "temp_directory": str(temporary),
        "threads": "2",
    }


class PartWriter:
    """Writes the rows of one table into Parquet files of a folder, a part for every so many rows."""

    def __init__(self, connection: DuckDBPyConnection, table: str, folder: Path, most: int = 200_000) -> None:
        self._connection, self._table, self._folder, self._most = connection, table, folder, most
        self._names = [column.name for column in TABLES[table]]
        self._waiting = 0
        self._lines = folder / f"{table}.ndjson"
        self._file = self._lines.open("w", encoding="utf-8")
        self.parts: list[Path] = []

    def add(self, rows: Iterable[TableRow]) -> None:
        """Take rows; raises OSError where no space is left."""
        for row in rows:
            self._file.write(json.dumps(dict(zip(self._names, row, strict=True))) + "\n")
            self._waiting += 1
        if self._waiting >= self._most:
            self._part()
            self._file = self._lines.open("w", encoding="utf-8")

    def close(self) -> list[Path]:
        """The files; at least one, so that an empty table is one too."""
        if self._waiting or not self.parts:
            self._part()
        else:
            self._file.close()
        self._lines.unlink(missing_ok=True)
        return self.parts

    def _part(self) -> None:
        self._file.close()
        part = self._folder / f"{self._table}-part{len(self.parts)}.parquet"
        types = ", ".join(f"'{column.name}': '{column.kind}'" for column in TABLES[self._table])
        source = f"read_json({quoted(self._lines)}, columns={{{types}}}, format='newline_delimited')"
        copy_into(self._connection, f"SELECT * FROM {source}", part)
        self.parts.append(part)
        self._waiting = 0


def copy_into(connection: DuckDBPyConnection, select: str, target: Path) -> None:
    """Write what ``select`` gives to a Parquet file; raises StoreError where no space is left."""
    _asked(connection, target, f"COPY ({select}) TO {quoted(target)} (FORMAT parquet, COMPRESSION zstd)")


def union_of(files: Sequence[Path], without: str | None = None) -> str:
    """The SELECT of all rows of Parquet files; without those whose id ``without`` gives."""
    listed = ", ".join(map(quoted, files))
    left_out = f" WHERE id NOT IN (FROM {without})" if without else ""
    return f"SELECT * FROM read_parquet([{listed}]){left_out}"


def column_of(connection: DuckDBPyConnection, file: Path, name: str) -> list[Any]:
    """All values of a column; raises StoreError if the file is none of Parquet."""
    rows = _asked(connection, file, f"SELECT {name} FROM read_parquet({quoted(file)})")
    return [value for (value,) in rows]


def columns_of(connection: DuckDBPyConnection, file: Path) -> list[str]:
    """The names of its columns; raises StoreError if the file is none of Parquet."""
    return [str(row[0]) for row in _asked(connection, file, f"DESCRIBE FROM read_parquet({quoted(file)})")]


def _asked(connection: DuckDBPyConnection, file: Path, sql: str) -> list[tuple[Any, ...]]:
    import duckdb

    try:
        return connection.execute(sql).fetchall()
    except duckdb.Error as error:
        raise StoreError(f"DuckDB cannot read or write {file}: {one_line(error)}") from None


def quoted(text: object) -> str:
    """A text as SQL has it."""
    return "'" + str(text).replace("'", "''") + "'"
