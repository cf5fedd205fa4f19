"""One SELECT on the tables of a store, by DuckDB, that reads those tables and nothing else of this machine.

Only tables that the query names are written as JSON lines, from the digests of artefacts. Then the database is
locked: no other file, no network, no setting can be reached.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from stash.core.errors import StoreError, UserError, one_line
from stash.core.imports import require_package
from stash.core.printable import printable_line
from stash.store.schema import DERIVED, TABLES, TableRow
from stash.store.store import Store

BLOCKS = "blocks"
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "max_temp_directory_size": "4GiB",
    "memory_limit": "1GiB",
    "preserve_insertion_order": "false",
    "threads": "2",
}
"""Of a database in memory that fetches nothing; what is beyond its memory goes to its temporary folder."""
_MAX_QUOTED = 600
"""Characters of DuckDB's own words that are shown."""
_BATCH_SIZE = 2_000
EXAMPLE = "select workload, instance, network_pct from profiles order by step_seconds"


class QueryAnswer(NamedTuple):
    """What a query gives: its columns' names, and row after row, to be read once.

    Reading raises UserError for what goes wrong in a row (a division, a cast).
    """

    columns: list[str]
    rows: Iterator[tuple[Any, ...]]


@contextmanager
def run_query(
    store: Store, sql: str, progress: Callable[[int, int], None] = lambda done, of: None
) -> Iterator[QueryAnswer]:
    """The answer to one SELECT, readable within the block; raises UserError with DuckDB's words and the columns.

    ``progress`` is called with how many artefacts of how many have been read. Raises StoreError where there is no
    room for temporary files.
    """
    library = require_package("duckdb", "this")
    with _errors_as_sentences(library):
        statements = library.extract_statements(sql)
    # DESCRIBE, SHOW and SUMMARIZE are a SELECT, to DuckDB
    if len(statements) != 1 or statements[0].type != library.StatementType.SELECT:
        raise UserError(
            f"stash query reads: type one SELECT on {', '.join(TABLES)}, like {EXAMPLE!r}"
        )
    named = [table for table in TABLES if re.search(rf"\b{table}\b", sql, re.IGNORECASE)]
    tables = named or list(TABLES)
    try:
        workplace = TemporaryDirectory(prefix="stash-store-")
    except OSError as error:
        raise StoreError(
            f"no folder for temporary files: {one_line(error)}; name one with TMPDIR"
        ) from None
    with workplace as folder:
        views = _write_tables(store, tables, Path(folder), progress)
        # from here on only the temporary folder can be opened, and that cannot be changed
        lock = (
            f"SET allowed_directories = [{_quote(f'{folder}/')}]",
            "SET enable_external_access = false",
            "SET lock_configuration = true",
        )
        settings = {**_SETTINGS, "temp_directory": folder}
        with library.connect(":memory:", config=settings) as connection:
            for statement in (*views, *lock):
                connection.execute(statement)
            with _errors_as_sentences(library, tables):
                running = connection.execute(sql)
            yield QueryAnswer(
                [str(column[0]) for column in running.description or ()],
                _rows(library, running, tables),
            )


def _rows(library: Any, running: Any, tables: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    with _errors_as_sentences(library, tables):
        while found := running.fetchmany(_BATCH_SIZE):
            yield from found


@contextmanager
def _errors_as_sentences(library: Any, tables: Sequence[str] = ()) -> Iterator[None]:
    """DuckDB's errors as UserError, with the columns of the tables that were named; Ctrl-C as itself."""
    try:
        yield
    except (library.Error, UnicodeError) as error:
        sentence = " ".join(str(error).split("\n\n", maxsplit=1)[0].split())
        listed = [
            f"{table} has {', '.join(column.name for column in TABLES[table])}" for table in tables
        ]
        if len(listed) == len(TABLES):
            listed = [f"the tables are {', '.join(TABLES)}"]
        raise UserError(
            ". ".join([printable_line(sentence.rstrip("."), _MAX_QUOTED), *listed])
        ) from None
    except RuntimeError as error:
        if "interrupted" not in str(error):
            raise
        raise KeyboardInterrupt from None


def _write_tables(
    store: Store, tables: Sequence[str], folder: Path, progress: Callable[[int, int], None]
) -> list[str]:
    """Write the rows of these ``tables`` into ``folder``; the SQL statements that make views of them.

    ``progress`` is called with how many artefacts of how many were read. Raises StoreError.
    """
    contents = store.contents()
    wanted = [*contents.stored, *contents.loose]
    derived = [table for table in tables if table in DERIVED]
    longest = 2**20
    try:
        files = {
            table: (folder / f"{table}.jsonl").open(
                "w", encoding="utf-8", errors="backslashreplace"
            )
            for table in tables
        }
        for done, rows in enumerate(store.rows(wanted) if derived else (), 1):
            for table in derived:
                longest = max(longest, *map(files[table].write, _json_lines(table, rows[table])), 0)
            progress(done, len(wanted))
        for blocks in store.blocks(wanted) if BLOCKS in files else ():
            files[BLOCKS].writelines(_json_lines(BLOCKS, blocks))
        for file in files.values():
            file.close()
    except OSError as error:
        raise StoreError(
            f"cannot read {store.url} by way of {folder}: {error.strerror or error}"
        ) from None
    return [_view_of(table, file.name, longest) for table, file in files.items()]


def _json_lines(table: str, rows: Iterable[TableRow]) -> Iterator[str]:
    names = [column.name for column in TABLES[table]]
    return (json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)


def _view_of(table: str, file: str, longest: int) -> str:
    columns = ", ".join(f"{_quote(column.name)}: {_quote(column.kind)}" for column in TABLES[table])
    options = f"columns={{{columns}}}, format='newline_delimited', maximum_object_size={longest}"
    return f"CREATE VIEW {table} AS SELECT * FROM read_json({_quote(file)}, {options})"


def _quote(text: str) -> str:
    """A text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"
