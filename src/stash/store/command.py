"""``stash store``, ``stash query`` and ``stash list``: parse, ask the store, show."""

from __future__ import annotations

import csv
import io
import sys
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from stash.core import parsers
from stash.core.errors import UserError
from stash.core.printable import print_written, printable, printable_line, strict_json
from stash.store.storing import store_option
from stash.ui.commands import App
from stash.ui.options import Options, argument, json_flag, option, quiet_flag

if TYPE_CHECKING:
    from stash.store.queries import QueryAnswer
    from stash.store.schema import TableRow
    from stash.store.store import Store
    from stash.ui.terminal import Listing

app = App(no_args_is_help=True)


def _store_argument() -> Any:
    return argument(
        "STORE", "A store: a folder or URL (default $STASH_STORE or this folder).", default=None
    )


@dataclass(frozen=True, kw_only=True)
class StoreAddOptions(Options):
    """One call of ``stash store add``."""

    files: tuple[str, ...] = argument("FILE...", "Profiles and probes.", many=True)
    store: str | None = store_option()


@dataclass(frozen=True, kw_only=True)
class StoreVerifyOptions(Options):
    """One call of ``stash store verify``."""

    url: str | None = _store_argument()
    quiet: bool = quiet_flag()


@app.callback()
def store() -> None:
    """Add profiles and probes to a store, and verify it."""


@app.command()
def add(options: StoreAddOptions) -> None:
    """Copy profiles and probes into a store, each once.

    Examples:
      stash store add *.stash.json --store ~/runs
    """
    from stash.core.artefact import read_content
    from stash.store.storage import SHOWN, id_of
    from stash.store.storing import choose_store, open_store

    url = choose_store(options.store)
    if url is None:
        raise UserError("which store? Say --store URL, or set STASH_STORE")
    target = open_store(url)
    for file in options.files:
        name = target.put(read_content(Path(file)), file)
        print(printable_line(f"{id_of(name)[:SHOWN]}  {file}"))


@app.command()
def verify(options: StoreVerifyOptions) -> None:
    """Read every artefact and name those that are damaged or unknown.

    Nothing is changed or removed. The exit code is 1 if anything is named.
    """
    from stash.store.store import verify_store as verified
    from stash.store.storing import make_progress, open_chosen_store

    opened = open_chosen_store(options.url)
    whole, suspects = verified(opened, make_progress(options.quiet))
    for each in suspects:
        why = each.why if each.why.startswith(each.name) else f"{each.name}: {each.why}"
        print(printable_line(why, 600))
    kept = f"{whole:,} {'artefact is' if whole == 1 else 'artefacts are'} whole"
    others = f"{len(suspects):,} {'file is' if len(suspects) == 1 else 'files are'} not"
    print(printable_line(f"{opened.url}: {kept}, {others}"))
    if suspects:
        raise typer.Exit(1)


FORMATS = ("table", "csv", "json")
_MAX_ROWS = 1_000
"""Of a table on a screen."""


@dataclass(frozen=True, kw_only=True)
class QueryOptions(Options):
    """One call of ``stash query``."""

    sql: str | None = argument(
        "SQL",
        "One SELECT in DuckDB's SQL (default: list the tables and their columns).",
        default=None,
    )
    store: str | None = store_option()
    format: str | None = option(
        "FORMAT",
        f"Write {', '.join(FORMATS)} (default: by --output's ending).",
        parsers.one_of(FORMATS),
    )
    output: Path | None = option(
        "FILE", "Write the answer to this file (default: print it).", Path, "-o", "--output"
    )
    quiet: bool = quiet_flag()


def query(options: QueryOptions) -> None:
    """Query a store or a folder of profiles with SQL.

    Examples:
      stash query "select workload, instance, network_pct from profiles order by step_seconds"
      stash query --store s3://bucket/runs "select name, avg(share) from stalls group by name" --format csv
      stash query "from blocks" -o blocks.csv
    """
    from stash.core.output_files import answer_file, write_output
    from stash.store.queries import run_query as queried
    from stash.store.storing import make_progress, open_chosen_store, say_unreadable

    if options.sql is None:
        from stash.store.schema import TABLES

        for table, columns in TABLES.items():
            print(table)
            for column in columns:
                print(f"  {column.name:22} {column.kind.lower():8} {column.meaning}")
        return
    how = options.format or "table"
    output = options.output
    if output is not None:
        ending = output.suffix.removeprefix(".")
        how = options.format or (ending if ending in FORMATS else "csv")
        if how == "table":
            raise UserError("a table is for a screen; save --format csv or json")
    target = None if output is None else answer_file(output)
    opened = open_chosen_store(options.store)
    with queried(opened, options.sql, make_progress(options.quiet)) as answer:
        if target is not None:
            write_output(target, _text(answer, how))
            print_written(target, False)
        elif how == "table":
            from stash.store.page import answer_listing

            shown = list(islice(answer.rows, _MAX_ROWS))
            _print_listing(answer_listing(answer.columns, shown))
            if next(answer.rows, None) is not None:
                print(f"The first {_MAX_ROWS:,} rows; --format csv prints all.")
        else:
            sys.stdout.write(_text(answer, how))
    say_unreadable(opened)


def _text(answer: QueryAnswer, how: str) -> str:
    if how == "json":
        # The names with those that repeat numbered (cores_1), since an object has each name once.
        names: list[str] = []
        for column in answer.columns:
            numbered = (f"{column}_{number}" for number in count(1))
            free = (name for name in numbered if name not in names and name not in answer.columns)
            names.append(next(free) if column in names else column)
        rows = [dict(zip(names, map(_plain, row), strict=True)) for row in answer.rows]
        return strict_json(rows) + "\n"
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(answer.columns)
    writer.writerows(answer.rows)
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


def _print_listing(fitted: Listing) -> None:
    """Line by line as it is, however wide the terminal."""
    from stash.ui.terminal import list_console

    list_console().print(fitted.text, no_wrap=True, overflow="ignore", crop=False)


@dataclass(frozen=True, kw_only=True)
class ListOptions(Options):
    """One call of ``stash list``."""

    url: str | None = _store_argument()
    limit: int = option("N", "Show the N newest.", parsers.whole(1), "-n", "--limit", default="30")
    json: bool = json_flag("Print JSON; docs/format.md documents its keys.")


def list_command(options: ListOptions) -> None:
    """List the profiles and probes of a store or folder, newest first.

    Examples:
      stash list runs/
      stash list s3://bucket/runs --limit 100
      stash list --json | jq '.[].step_seconds'
    """
    from stash.store.schema import TABLES
    from stash.store.storing import open_chosen_store, say_unreadable

    opened = open_chosen_store(options.url)
    contents = opened.contents()
    there = len(contents.stored) + len(contents.loose)
    wanted = min(options.limit, there)
    rows = [
        row
        for names in (contents.stored, contents.loose)
        for row in _readable(opened, names, wanted)
    ]
    rows.sort(key=lambda row: (str(row[3]), str(row[0])), reverse=True)
    rows = rows[:wanted]
    if options.json:
        names = [column.name for column in TABLES["artefacts"]]
        print(strict_json([dict(zip(names, row, strict=True)) for row in rows]))
    else:
        _print(rows, there, len(opened.unreadable), opened.url)
    say_unreadable(opened)


def _readable(store: Store, names: list[str], wanted: int) -> list[TableRow]:
    """The rows of the first of ``names`` that can be read, as many as wanted."""
    rows: list[TableRow] = []
    at = 0
    while len(rows) < wanted and at < len(names):
        part = names[at : at + wanted - len(rows)]
        rows += store.heads(part)
        at += len(part)
    return rows


def _print(rows: list[TableRow], there: int, unreadable: int, url: str) -> None:
    from stash.store.page import artefact_listing
    from stash.ui.terminal import list_width

    if not there:
        print(
            printable_line(
                f"{url} has no artefacts; `stash profile --store {url} train.py` puts one there"
            )
        )
    if not rows:
        return
    fitted = artefact_listing(rows, list_width())
    _print_listing(fitted)
    more = there - len(rows) - unreadable
    notes = [f"{more:,} more; --limit {there} shows all"] if more > 0 else []
    for note in filter(None, [*notes, fitted.note]):
        print(note)
