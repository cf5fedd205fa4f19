"""One SELECT on the tables of a store, by DuckDB, that reads those tables and nothing else of this machine.

Only tables that the query names are made ready: from what was compacted, and from the digests of what came since.
Then the database is locked: no other file, no network, no setting can be reached, whoever wrote the query.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stash.base.errors import UserError
from stash.base.printable import printable_line
from stash.keep.store.compaction import KeptTables, kept_tables, leave_out, newest, parts_of
from stash.keep.store.parquet import quoted, union_of, workplace
from stash.keep.store.store import Store
from stash.keep.store.tables import TABLES

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_MOST_SAID = 600
"""Characters of DuckDB's own words."""
_AT_ONCE = 2_000


class QueryAnswer:
    """What a query gave, to be read once: its columns' names, and row after row."""

    def __init__(self, connection: DuckDBPyConnection, sql: str, folder: Path) -> None:
        self._connection, self._sql, self._folder = connection, sql, folder
        self._running = connection.execute(sql)
        self.columns = [str(column[0]) for column in self._running.description or ()]

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Row after row; raises UserError for what goes wrong in one of them (a division, a cast)."""
        with _sentences():
            while found := self._running.fetchmany(_AT_ONCE):
                yield from found

    def parquet(self) -> bytes:
        """All of it as a Parquet file."""
        file = self._folder / "answer.parquet"
        with _sentences():
            self._connection.cursor().sql(self._sql).to_parquet(str(file))  # this one is being read
        return file.read_bytes()


@contextmanager
def query(store: Store, sql: str, say: Callable[[int, int], None] = lambda done, of: None) -> Iterator[QueryAnswer]:
    """The answer to one SELECT, readable within the block; raises UserError with DuckDB's words and the columns.

    ``say`` hears how many artefacts of how many have been read, of those that were not compacted.
    """
    _one_select(sql)
    tables = [table for table in TABLES if re.search(rf"\b{table}\b", sql, re.IGNORECASE)] or list(TABLES)
    with workplace() as (connection, temporary):
        contents = store.contents()
        kept = kept_tables(store, newest(store), tables, connection, temporary)
        there = [*contents.stored, *contents.loose]
        gone = leave_out(connection, kept.names.difference(there))
        parts = parts_of(store, [n for n in there if n not in kept.names], tables, connection, temporary, say)
        _views(connection, kept, gone, parts)
        _lock(connection, temporary, kept.files.values())
        with _sentences(tables):
            answer = QueryAnswer(connection, sql, temporary)
        yield answer


def _one_select(sql: str) -> None:
    """Raise UserError for what is no single SELECT (DESCRIBE, SHOW and SUMMARIZE are, to DuckDB)."""
    try:
        import duckdb
    except ImportError:
        raise UserError("stash query needs DuckDB, which is not installed: pip install duckdb") from None
    with _sentences():
        statements = duckdb.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise UserError(f"stash query reads: type one SELECT on {', '.join(TABLES)}, like {EXAMPLE!r}")


EXAMPLE = "select workload, instance, network_pct from profiles order by step_seconds"


def _views(connection: DuckDBPyConnection, kept: KeptTables, gone: str | None, parts: dict[str, list[Path]]) -> None:
    for table, files in parts.items():
        old = [union_of([kept.files[table]], gone)] if kept.files else []
        connection.execute(f"CREATE VIEW {table} AS {' UNION ALL '.join([*old, union_of(files)])}")


def _lock(connection: DuckDBPyConnection, temporary: Path, files: Iterable[Path]) -> None:
    """From here on only the tables' files and the temporary folder can be opened, and that cannot be changed."""
    connection.execute(f"SET allowed_directories = [{quoted(f'{temporary}/')}]")
    connection.execute(f"SET allowed_paths = [{', '.join(map(quoted, files))}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


@contextmanager
def _sentences(tables: Iterable[str] = ()) -> Iterator[None]:
    """DuckDB's errors as a UserError, with the columns of the tables that were named."""
    import duckdb

    try:
        yield
    except (duckdb.Error, UnicodeError) as error:
        said = " ".join(str(error).split("\n\n")[0].split())
        columns = [f"{table} has {', '.join(column.name for column in TABLES[table])}" for table in tables]
        listed = columns if len(columns) < len(TABLES) else [f"the tables are {', '.join(TABLES)}"]
        raise UserError(". ".join([printable_line(said.rstrip("."), _MOST_SAID), *listed])) from None
