"""Two Parquet files next to a store's artefacts, so that a query opens them rather than a digest for each artefact.

``index/tables-3.parquet`` has a row for each artefact, with its rows of every derived table in lists;
``index/blocks-3.parquet`` has a row for each block. Both name the artefacts that they hold and are replaced whole, so
whoever reads them meanwhile needs no lock, and what they lack is read from digests and artefacts. Needs DuckDB.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from stash.core.documents import PROFILE
from stash.core.errors import StoreError, one_line
from stash.core.imports import require_package
from stash.store.schema import DERIVED, TABLES, VERSION
from stash.store.store import Store

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

BLOCKS = "blocks"
FILES = {name: f"index/{name}-{VERSION}.parquet" for name in ("tables", BLOCKS)}
_ROWS = 16_384
"""Of a group in a Parquet file: an artefact's rows take some kB, and a group has to fit in memory."""
_MEMORY = "256MB"
"""Of DuckDB; what is beyond goes to its temporary folder."""


def _row_type(table: str) -> dict[str, str]:
    return {column.name: column.kind for column in TABLES[table]}


def _list_of(table: str) -> str:
    fields = (f'"{name}" {kind}' for name, kind in _row_type(table).items())
    return f"STRUCT({', '.join(fields)})[]"


_COLUMNS = {
    "tables": {"file": "VARCHAR", **{table: _list_of(table) for table in DERIVED}},
    BLOCKS: {"file": "VARCHAR", **_row_type(BLOCKS)},
}
"""Of each file, with their types."""


def _described(name: str) -> list[tuple[str, str]]:
    return [(column, kind.replace('"', "")) for column, kind in _COLUMNS[name].items()]


class Compacted(NamedTuple):
    """What a compaction did."""

    artefacts: int
    """In the tables now."""
    fresh: int
    """Of those, new in them."""


def duckdb() -> Any:
    """The library; raises UserError that says how to install it."""
    return require_package("duckdb", "this")


@contextmanager
def workplace() -> Iterator[tuple[DuckDBPyConnection, Path]]:
    """A database and a folder of its own, both gone afterwards; raises StoreError where there is no room for one."""
    library = duckdb()
    try:
        folder = TemporaryDirectory(prefix="stash-store-")
    except OSError as error:
        raise StoreError(f"no folder for temporary files: {one_line(error)}; name one with TMPDIR") from None
    with folder as name, library.connect(":memory:", config=settings(Path(name))) as connection:
        yield connection, Path(name)


def settings(temporary: Path) -> dict[str, str | bool | int | float | list[str]]:
    """Settings of a database in memory that spills to ``temporary`` and fetches nothing."""
    return {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "memory_limit": _MEMORY,
        "preserve_insertion_order": "false",
        "temp_directory": str(temporary),
        "threads": "2",
    }


def quoted(text: object) -> str:
    """A text as SQL has it."""
    return "'" + str(text).replace("'", "''") + "'"


def is_compacted(store: Store) -> bool:
    """Whether there are tables; they may be of other artefacts than the store has now."""
    try:
        return bool(store.storage.read(FILES["tables"], 1))
    except (StoreError, FileNotFoundError):
        return False


def compact(
    store: Store, rebuild: bool = False, progress: Callable[[int, int], None] = lambda done, of: None
) -> Compacted:
    """Write both files for all stored artefacts; with ``rebuild`` nothing of ``index/`` is used for that.

    ``progress`` is called with how many new ones of how many are read. Files under names of their own are left out,
    since they may change. Raises StoreError.
    """
    stored = store.contents().stored
    with workplace() as (connection, temporary):
        sources = {
            name: Indexed(store, name, [*_COLUMNS[name]], stored, connection, temporary, progress, rebuild)
            for name in FILES
        }
        for name, source in sources.items():
            if source.changed:
                file = temporary / f"new-{name}.parquet"
                _copy(connection, source.select, file)
                store.storage.put(FILES[name], file.read_bytes(), new=False)
    fresh = sources["tables"].fresh
    unread = len(store.unreadable.keys() & set(fresh))
    return Compacted(len(stored) - unread, len(fresh) - unread)


class Indexed:
    """Some ``columns`` of one of the files for the ``wanted`` artefacts, with what it lacks in a file of its own."""

    def __init__(
        self, store: Store, name: str, columns: Sequence[str], wanted: Sequence[str], connection: DuckDBPyConnection,
        temporary: Path, progress: Callable[[int, int], None], rebuild: bool = False,
    ) -> None:  # fmt: skip
        if name == BLOCKS:
            wanted = [each for each in wanted if each.endswith(PROFILE.suffix)]
        self.parquet: Path | None = None
        kept: set[str] = set()
        if not rebuild:
            with suppress(StoreError, FileNotFoundError):  # a cache: damaged or gone, it is made again
                file = store.storage.here(FILES[name], temporary)
                there = _asked(connection, file, f"DESCRIBE FROM read_parquet({quoted(file)})")
                if [(row[0], row[1].replace('"', "")) for row in there] == _described(name):
                    found = _asked(connection, file, f"SELECT DISTINCT file FROM read_parquet({quoted(file)})")
                    self.parquet, kept = file, {each for (each,) in found}
        self.fresh = [each for each in wanted if each not in kept]
        self.changed = self.parquet is None or bool(self.fresh) or not kept <= set(wanted)
        types = {column: _COLUMNS[name][column] for column in columns}
        if name == BLOCKS:
            rows = _block_lines(store, self.fresh)
        else:
            rows = _table_lines(store, self.fresh, columns[1:], progress, rebuild)
        try:
            self.select = _written(connection, temporary / f"{name}-fresh", rows, types)
            if self.parquet is not None:
                # The names are written down, since another compaction may replace the file before it is read.
                names = ({"file": each} for each in sorted(kept & set(wanted)))
                known = _written(connection, temporary / f"{name}-kept", names, {"file": "VARCHAR"})
                old = f"SELECT {', '.join(columns)} FROM read_parquet({quoted(self.parquet)}) WHERE file IN ({known})"
                self.select = f"{old} UNION ALL {self.select}"
        except OSError as error:
            raise StoreError(f"cannot read {store.url} by way of {temporary}: {error.strerror or error}") from None


def _written(
    connection: DuckDBPyConnection, file: Path, rows: Iterable[dict[str, Any]], types: dict[str, str]
) -> str:
    """The SELECT of these rows, written to a Parquet file: JSON takes DuckDB 32 MB of memory wherever it is read."""
    lines, parquet = file.with_suffix(".ndjson"), file.with_suffix(".parquet")
    longest = 2**24
    with lines.open("w", encoding="utf-8") as written:
        for row in rows:
            line = json.dumps(row) + "\n"
            longest = max(longest, len(line))
            written.write(line)
    columns = ", ".join(f"{quoted(column)}: {quoted(kind)}" for column, kind in types.items())
    options = f"columns={{{columns}}}, format='newline_delimited', maximum_object_size={longest}"
    _copy(connection, f"SELECT * FROM read_json({quoted(lines)}, {options})", parquet)
    lines.unlink()
    return f"SELECT * FROM read_parquet({quoted(parquet)})"


def _copy(connection: DuckDBPyConnection, select: str, file: Path) -> None:
    options = f"FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {_ROWS}"
    _asked(connection, file, f"COPY ({select}) TO {quoted(file)} ({options})")


def _table_lines(
    store: Store, names: Sequence[str], tables: Sequence[str], progress: Callable[[int, int], None], rebuild: bool
) -> Iterator[dict[str, Any]]:
    """What is derived again is kept in the store if it can be; digests are used, but for a ``rebuild``."""
    for done, rows in enumerate(store.rows(names, trust=not rebuild), 1):
        lists = {table: [dict(zip(_row_type(table), row, strict=True)) for row in rows[table]] for table in tables}
        yield {"file": rows["artefacts"][0][1], **lists}
        progress(done, len(names))


def _block_lines(store: Store, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    for name in names:
        for rows in store.blocks([name]):
            for row in rows:
                yield {"file": name, **dict(zip(_row_type(BLOCKS), row, strict=True))}


def views(
    store: Store, tables: Iterable[str], connection: DuckDBPyConnection, temporary: Path,
    progress: Callable[[int, int], None],
) -> tuple[list[str], list[Path]]:  # fmt: skip
    """The statements that make views of these ``tables``, and the files of the store that they read."""
    contents = store.contents()
    wanted = [*contents.stored, *contents.loose]
    statements, files = [], []
    for name, inside in (("tables", DERIVED), (BLOCKS, (BLOCKS,))):
        asked = [table for table in tables if table in inside]
        if not asked:
            continue
        columns = [*_COLUMNS[name]] if name == BLOCKS else ["file", *asked]
        source = Indexed(store, name, columns, wanted, connection, temporary, progress)
        files += [source.parquet] if source.parquet is not None else []
        for table in asked:
            shown = "* EXCLUDE (file)" if name == BLOCKS else f"unnest({table}, max_depth := 2)"
            statements.append(f"CREATE VIEW {table} AS SELECT {shown} FROM ({source.select})")
    return statements, files


def _asked(connection: DuckDBPyConnection, file: Path, sql: str) -> list[tuple[Any, ...]]:
    try:
        return connection.execute(sql).fetchall()
    except duckdb().Error as error:
        raise StoreError(f"DuckDB cannot read or write {file}: {one_line(error)}") from None
