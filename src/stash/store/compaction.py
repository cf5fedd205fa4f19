"""All digests and blocks of a store as Parquet tables, written part by part, so that a query opens a few files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from stash.core.errors import StoreError, UserError, one_line
from stash.store import storage
from stash.store.schema import TABLES, VERSION, TableRow
from stash.store.store import HEAD, Store

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# Parquet ---------------------------------------------------------------------------------------------------
# Rows in files that DuckDB reads: written part by part, so that memory holds some thousand artefacts' at most.
#
# Rows pass through a file of JSON lines, which needs nothing but DuckDB itself. Knows nothing of stores.

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


# Compaction ------------------------------------------------------------------------------------------------
# All digests and blocks of a store as Parquet tables beside the artefacts, so that a query opens a few files only.
#
# A generation of tables is written whole before ``tables.json`` names it, so whoever reads meanwhile reads the one
# before, which is kept until the next. Artefacts that came since are read by themselves (``query``).

POINTER = "index/tables.json"
BLOCKS = "blocks"
_MAX_POINTER = 10_000


class Generation(NamedTuple):
    """A set of tables that were written together."""

    folder: str
    """In the store."""
    before: str | None = None
    """The one that it replaced, which somebody may still read."""

    def file(self, table: str) -> str:
        """In the store."""
        return f"{self.folder}/{table}.parquet"


class Compacted(NamedTuple):
    """What a compaction did."""

    artefacts: int
    """In the tables now."""
    fresh: int
    """Of those, new in them."""


def newest(store: Store) -> Generation | None:
    """The tables that the store says are the newest; ``None`` if there are none of this version."""
    try:
        found = json.loads(store.shelf.read(POINTER, _MAX_POINTER))
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("version") != VERSION:
        return None
    folder, before = found.get("folder"), found.get("before")
    if not _is_generation(folder):
        return None
    return Generation(str(folder), str(before) if _is_generation(before) else None)


def compact(
    store: Store, rebuild: bool = False, say: Callable[[int, int], None] = lambda done, of: None
) -> Compacted:
    """Write the tables of all stored artefacts; with ``rebuild`` nothing of ``index/`` is used for that.

    ``say`` hears how many new ones of how many are read. Files under names of their own are left out, since they may
    change. Raises StoreError.
    """
    stored = store.contents().stored
    before = newest(store)
    folder = f"index/tables-{hashlib.sha256(chr(10).join(stored).encode()).hexdigest()[:16]}"
    with workplace() as (connection, temporary):
        kept = KeptTables({}, frozenset()) if rebuild else kept_tables(store, before, TABLES, connection, temporary)
        fresh = [name for name in stored if name not in kept.names]
        gone = leave_out(connection, kept.names - set(stored), temporary)
        parts = parts_of(store, fresh, TABLES, connection, temporary, say, trust=not rebuild)
        for table in TABLES:
            file = temporary / f"{table}.new.parquet"
            old = [union_of([kept.files[table]], gone)] if kept.files else []
            copy_into(connection, " UNION ALL ".join([*old, union_of(parts[table])]), file)
            store.shelf.put(Generation(folder).file(table), file.read_bytes(), new=False)
    _point(store, folder, before)
    unread = len(store.unreadable.keys() & set(fresh))
    return Compacted(len(stored) - unread, len(fresh) - unread)


def _point(store: Store, folder: str, before: Generation | None) -> None:
    """Say that these are the newest tables, and remove those that nobody can be reading any more."""
    past = [] if before is None else [each for each in (before.folder, before.before) if each not in (None, folder)]
    pointer = {"version": VERSION, "folder": folder, "before": past[0] if past else None}
    store.shelf.put(POINTER, (json.dumps(pointer) + "\n").encode(), new=False)
    for old in past[1:]:
        with suppress(StoreError, FileNotFoundError):
            store.shelf.remove(str(old))


class KeptTables(NamedTuple):
    """Tables that were compacted before, as files of this machine."""

    files: dict[str, Path]
    names: frozenset[str]
    """Of the artefacts in them."""


def kept_tables(
    store: Store,
    generation: Generation | None,
    tables: Iterable[str],
    connection: DuckDBPyConnection,
    temporary: Path,
) -> KeptTables:
    """Those of ``tables`` and which artefacts are in them; nothing if they are damaged or gone, as a cache may be."""
    wanted = dict.fromkeys((HEAD, *tables))
    if generation is not None:
        with suppress(StoreError, FileNotFoundError):
            files = {table: store.shelf.here(generation.file(table), temporary) for table in wanted}
            columns = {table: columns_of(connection, file) for table, file in files.items()}
            if columns == {table: [column.name for column in TABLES[table]] for table in wanted}:
                return KeptTables(files, frozenset(column_of(connection, files[HEAD], "file")))
    return KeptTables({}, frozenset())


def parts_of(
    store: Store,
    wanted: Sequence[str],
    tables: Iterable[str],
    connection: DuckDBPyConnection,
    temporary: Path,
    say: Callable[[int, int], None],
    trust: bool = True,
) -> dict[str, list[Path]]:
    """Parquet files with the rows of these artefacts, by table; raises StoreError where no space is left for them.

    What is derived anew is kept in the store if it can be; digests that are there are used if they are ``trust``ed.
    """
    try:
        writers = {table: PartWriter(connection, table, temporary) for table in tables}
        derived = store.rows(wanted, trust) if writers.keys() - {BLOCKS} else ()
        for done, rows in enumerate(derived, 1):
            for table in writers.keys() & rows.keys():
                writers[table].add(rows[table])
            say(done, len(wanted))
        for blocks in store.blocks(wanted) if BLOCKS in writers else ():
            writers[BLOCKS].add(blocks)
        return {table: writer.close() for table, writer in writers.items()}
    except OSError as error:
        raise StoreError(f"cannot read {store.url} by way of {temporary}: {error.strerror or error}") from None


def leave_out(connection: DuckDBPyConnection, gone: Iterable[str], temporary: Path) -> str | None:
    """What reads the ids of artefacts that are in the tables and no more in the store, if there are any."""
    ids = [[storage.id_of(name)] for name in gone]
    if not ids:
        return None
    connection.execute("CREATE TABLE gone (id VARCHAR)")
    connection.executemany("INSERT INTO gone VALUES (?)", ids)
    copy_into(connection, "SELECT id FROM gone", temporary / "gone.parquet")
    return f"read_parquet({quoted(temporary / 'gone.parquet')})"


def _is_generation(folder: object) -> bool:
    return isinstance(folder, str) and folder.startswith("index/tables-") and folder[13:].isalnum()
