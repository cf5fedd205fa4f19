"""One SELECT on the tables of a store, by DuckDB, that reads those tables and nothing else of this machine.

Only tables that the query names are made ready, from the digests of artefacts. Then the database is locked: no other
file, no network, no setting can be reached.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from stash.core.errors import UserError
from stash.core.imports import require_package
from stash.core.printable import printable_line
from stash.store.query_tables import duckdb_settings, make_workplace, quote, write_tables
from stash.store.schema import TABLES
from stash.store.store import Store

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

    ``progress`` is called with how many artefacts of how many have been read.
    """
    library = require_package("duckdb", "this")
    _check_one_select(library, sql)
    tables = [table for table in TABLES if re.search(rf"\b{table}\b", sql, re.IGNORECASE)] or list(
        TABLES
    )
    with make_workplace() as temporary:
        statements = write_tables(store, tables, temporary, progress)
        with library.connect(":memory:", config=duckdb_settings(temporary)) as connection:
            for statement in (*statements, *_lock(temporary)):
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
        columns = [
            f"{table} has {', '.join(column.name for column in TABLES[table])}" for table in tables
        ]
        listed = columns if len(columns) < len(TABLES) else [f"the tables are {', '.join(TABLES)}"]
        raise UserError(
            ". ".join([printable_line(sentence.rstrip("."), _MAX_QUOTED), *listed])
        ) from None
    except RuntimeError as error:
        if "interrupted" not in str(error):
            raise
        raise KeyboardInterrupt from None


def _check_one_select(library: Any, sql: str) -> None:
    """Raise UserError for what is no single SELECT (DESCRIBE, SHOW and SUMMARIZE are, to DuckDB)."""
    with _errors_as_sentences(library):
        statements = library.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != library.StatementType.SELECT:
        raise UserError(
            f"stash query reads: type one SELECT on {', '.join(TABLES)}, like {EXAMPLE!r}"
        )


def _lock(temporary: Path) -> Iterator[str]:
    """From here on only the temporary folder can be opened, and that cannot be changed."""
    yield f"SET allowed_directories = [{quote(f'{temporary}/')}]"
    yield "SET enable_external_access = false"
    yield "SET lock_configuration = true"
