"""``stash query``: one SELECT on the tables of a store, printed as a table, CSV or JSON, or saved, as Parquet too.

Parses, asks ``keep/store``, prints.
"""

from __future__ import annotations

import csv
import io
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stash.base.errors import StoreError, UserError
from stash.base.printable import printable, strict_json
from stash.cli.options import flag, option, seconds_of
from stash.cli.storing import StoreOption

if TYPE_CHECKING:
    from stash.keep.store import QueryAnswer

SQL_HELP = "One SELECT, as DuckDB has it; `stash query --tables` shows tables and columns."
FORMATS = ("table", "csv", "json", "parquet")
TIMEOUT_HELP = "End a query that takes longer, like 10m; one that needs more than 1 GiB of memory is always ended."
_LONGEST = 86_400
_MOST_ROWS = 1_000
"""Of a table on a screen."""


def query(
    sql: Annotated[str | None, typer.Argument(metavar="SQL", help=SQL_HELP, show_default=False)] = None,
    store: StoreOption = None,
    format: Annotated[str | None, option("FORMAT", f"One of {', '.join(FORMATS)}; else as --output ends.")] = None,
    output: Annotated[
        Path | None, option("FILE", "Where the answer goes; else it is printed.", "-o", "--output")
    ] = None,
    timeout: Annotated[str, option("TIME", TIMEOUT_HELP, "--timeout")] = "60s",
    tables: Annotated[bool, flag("--tables", "Show the tables and their columns.")] = False,
) -> None:
    """Ask a store, or a folder of profiles, a question in SQL.

    [bold]Examples[/bold]

      stash query "select workload, instance, network_pct from profiles order by step_seconds"
      stash query --store s3://bucket/runs "select name, avg(share) from stalls group by name" --format csv
      stash query "from blocks" -o blocks.parquet
    """
    from stash.cli.storing import needed, progress, say_unreadable
    from stash.keep.store import query as queried
    from stash.keep.store.queries import EXAMPLE

    if tables:
        _print_tables()
        return
    if sql is None:
        raise UserError(f'type a SELECT, like `stash query "{EXAMPLE}"`')
    how, seconds = _format(format, output), seconds_of("--timeout", timeout)
    if not 0 < seconds <= _LONGEST:
        raise UserError(f"--timeout {timeout}: a query may take up to a day; write it like --timeout 10m")
    opened = needed(store)
    with queried(opened, sql, progress("read"), seconds) as answer:
        if how == "parquet":
            _save(answer.parquet(), output)
        elif output is not None:
            _save(_text(answer, how), output)
        elif how == "table":
            _print_table(answer)
        else:
            sys.stdout.write(_text(answer, how))
    say_unreadable(opened)


def _format(format: str | None, output: Path | None) -> str:
    """The answer's format; raises UserError."""
    ending = "" if output is None else output.suffix.removeprefix(".")
    how = format or (ending if ending in FORMATS else "table" if output is None else "csv")
    if how not in FORMATS:
        raise UserError(f"--format {how}: it is one of {', '.join(FORMATS)}")
    if how == "parquet" and output is None:
        raise UserError("a Parquet file is not for a screen; say where it goes: --output answer.parquet")
    if how == "table" and output is not None:
        raise UserError("a table is for a screen; save --format csv, json or parquet")
    return how


def _text(answer: QueryAnswer, how: str) -> str:
    if how == "json":
        rows = [dict(zip(answer.columns, map(_plain, row), strict=True)) for row in answer.rows()]
        return strict_json(rows) + "\n"
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(answer.columns)
    writer.writerows(answer.rows())
    return printable(text.getvalue())


def _plain(value: Any) -> Any:
    """A value as JSON has it: numbers that are none as null, and what JSON does not know as text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    return str(value)


def _print_table(answer: QueryAnswer) -> None:
    from rich.console import Console

    from stash.show.store import answered

    rows = answer.rows()
    shown = list(islice(rows, _MOST_ROWS))
    fitted = answered(answer.columns, shown)
    Console(highlight=False, width=max(fitted.width, 1)).print(fitted.table)
    if next(rows, None) is not None:
        print(f"The first {_MOST_ROWS:,} rows; --format csv prints all.")


def _save(content: str | bytes, output: Path | None) -> None:
    from stash.base.files import write_whole

    assert output is not None
    try:
        write_whole(output, content, mode=None)
    except OSError as error:
        raise StoreError(f"cannot write {output}: {error.strerror or error}") from None


def _print_tables() -> None:
    from stash.keep.store.tables import TABLES

    for table, columns in TABLES.items():
        print(table)
        for column in columns:
            print(f"  {column.name:22} {column.kind.lower():8} {column.meaning}")
