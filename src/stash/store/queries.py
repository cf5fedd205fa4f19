"""One SELECT on the tables of a store, by DuckDB, that reads those tables and nothing else of this machine.

Only tables that the query names are made ready, from the digests of artefacts.
Then a process of its own asks a database that is locked: no other file, no network, no setting can be reached, and
no more time and memory taken than is allowed, whoever wrote the query.
"""

from __future__ import annotations

import json
import marshal
import os
import re
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

from stash.core.errors import StashError, StoreError, UserError
from stash.core.imports import require_package
from stash.core.printable import printable_line
from stash.core.units import format_seconds
from stash.store import query_process
from stash.store.query_tables import duckdb_settings, make_workplace, quote, write_tables
from stash.store.schema import TABLES
from stash.store.store import Store

_MAX_QUOTED = 600
"""Characters of DuckDB's own words that are shown."""
SECONDS = 600.0
"""That a query may take, by default; what is read of the store before it is not counted."""
MEMORY_BYTES, FILE_BYTES = 2**30, 2**32
"""What a query may take, beyond DuckDB itself; and the size of what it sorts on disk or saves."""
_ASKING = Path(query_process.__file__)
_GRACE = 30
"""Seconds after which a process ends itself, should whoever started it be killed."""


class QueryAnswer:
    """What a query gives, to be read once: its columns' names, and row after row.

    Another process finds it. Raises UserError with DuckDB's words, and where it takes more than it may.
    """

    def __init__(self, place: Path, seconds: float) -> None:
        self._left, self._seconds, self._folder = seconds, seconds, place
        self._tables: Sequence[str] = ()
        self._job: dict[str, Any] = {}
        self._running = _started()
        self.columns: list[str] = []

    def ask(self, sql: str, before: Sequence[str], tables: Sequence[str]) -> None:
        """Hand over the query, with what makes its ``tables`` ready; the names of its columns are there then."""
        self._tables = tables
        config = {**duckdb_settings(self._folder), "max_temp_directory_size": f"{FILE_BYTES // 2**20}MiB"}
        self._job = {
            "path": sys.path, "seconds": round(self._seconds) + _GRACE, "memory_bytes": MEMORY_BYTES,
            "file_bytes": FILE_BYTES, "config": config, "before": [*before], "sql": sql, "parquet": None,
        }  # fmt: skip
        self._hand_over(self._job)
        self.columns = self._next()[1]

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Row after row; raises UserError for what goes wrong in one of them (a division, a cast)."""
        while (found := self._next())[0] == "rows":
            yield from found[1]

    def parquet(self) -> bytes:
        """Write all of it as a Parquet file."""
        self.close()
        self._running = _started()
        file = self._folder / "answer.parquet"
        self._hand_over({**self._job, "parquet": str(file)})
        self._next()
        return file.read_bytes()

    def close(self) -> None:
        """End the process, whatever it computes."""
        self._running.kill()
        self._running.wait()
        for pipe in (self._running.stdin, self._running.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def _hand_over(self, job: Mapping[str, Any]) -> None:
        assert self._running.stdin is not None
        with suppress(BrokenPipeError):  # that it has ended is seen where its answer is awaited
            self._running.stdin.write(json.dumps(job).encode())
            self._running.stdin.close()

    def _next(self) -> tuple[str, Any]:
        """The next frame. Time counts only while it is awaited: a slow reader is no slow query."""
        head = self._read(query_process.LENGTH.size)
        what, content = marshal.loads(self._read(query_process.LENGTH.unpack(head)[0]))
        if what == "memory":
            raise self._too_much()
        if what == "error":
            raise _in_a_sentence(content, self._tables)
        return what, content

    def _read(self, count: int) -> bytes:
        assert self._running.stdout is not None
        parts, pipe = b"", self._running.stdout.fileno()
        while len(parts) < count:
            began = time.monotonic()
            ready, _, _ = select.select([pipe], [], [], max(0.0, self._left))
            self._left -= time.monotonic() - began
            if not ready:
                raise UserError(
                    f"the query took longer than {format_seconds(self._seconds)} and was ended; ask for less"
                )
            part = os.read(pipe, min(count - len(parts), 2**20))
            if not part:
                raise self._ended()
            parts += part
        return parts

    def _ended(self) -> StashError:
        """Why there is no answer: memory that no library could do without, or something of ours."""
        code = self._running.wait()
        if code < 0:
            return self._too_much()
        return StoreError(f"the process that asks DuckDB failed with exit code {code}; is DuckDB installed whole?")

    def _too_much(self) -> UserError:
        return UserError(
            f"the query needs more than {MEMORY_BYTES // 2**30} GiB of memory and was ended; ask for fewer rows or "
            "columns, or for sums and means instead of lists"
        )


def _started() -> Popen[bytes]:
    return Popen(
        [sys.executable, "-S", str(_ASKING)], stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True
    )


@contextmanager
def query(
    store: Store,
    sql: str,
    progress: Callable[[int, int], None] = lambda done, of: None,
    seconds: float = SECONDS,
) -> Iterator[QueryAnswer]:
    """The answer to one SELECT, readable within the block; raises UserError with DuckDB's words and the columns.

    ``progress`` is called with how many artefacts of how many have been read. The query itself is ended after so many
    ``seconds``.
    """
    _check_one_select(sql)
    tables = [table for table in TABLES if re.search(rf"\b{table}\b", sql, re.IGNORECASE)] or list(TABLES)
    with make_workplace() as temporary:
        answer = QueryAnswer(temporary, seconds)
        try:
            statements = write_tables(store, tables, temporary, progress)
            answer.ask(sql, [*statements, *_lock(temporary)], tables)
            yield answer
        finally:
            answer.close()


def _check_one_select(sql: str) -> None:
    """Raise UserError for what is no single SELECT (DESCRIBE, SHOW and SUMMARIZE are, to DuckDB)."""
    library = require_package("duckdb", "this")
    try:
        statements = library.extract_statements(sql)
    except (library.Error, UnicodeError) as error:
        raise _in_a_sentence(str(error)) from None
    if len(statements) != 1 or statements[0].type != library.StatementType.SELECT:
        raise UserError(f"stash query reads: type one SELECT on {', '.join(TABLES)}, like {EXAMPLE!r}")


EXAMPLE = "select workload, instance, network_pct from profiles order by step_seconds"


def _lock(temporary: Path) -> Iterator[str]:
    """From here on only the temporary folder can be opened, and that cannot be changed."""
    yield f"SET allowed_directories = [{quote(f'{temporary}/')}]"
    yield "SET enable_external_access = false"
    yield "SET lock_configuration = true"


def _in_a_sentence(words: str, tables: Sequence[str] = ()) -> UserError:
    """DuckDB's words, with the columns of the tables that were named."""
    sentence = " ".join(words.split("\n\n", maxsplit=1)[0].split())
    columns = [f"{table} has {', '.join(column.name for column in TABLES[table])}" for table in tables]
    listed = columns if len(columns) < len(TABLES) else [f"the tables are {', '.join(TABLES)}"]
    return UserError(". ".join([printable_line(sentence.rstrip("."), _MAX_QUOTED), *listed]))
