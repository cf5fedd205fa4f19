"""``stash list``: the artefacts of a store, or of a folder, the newest first.

Parses, reads the rows of ``artefacts``, prints them. Derives nothing that is kept already.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from stash.base.printable import strict_json
from stash.cli.options import flag, option
from stash.cli.storing import StoreOption

if TYPE_CHECKING:
    from stash.keep.store import Store, TableRow

URL_HELP = "A store: a folder or a URL; else --store, $STASH_STORE, or the current folder."
_FROM_TABLES = 1_000
"""Rows from which on compacted tables are read rather than digests one by one."""


def list_command(
    url: Annotated[str | None, typer.Argument(metavar="STORE", help=URL_HELP, show_default=False)] = None,
    store: StoreOption = None,
    limit: Annotated[int, option("N", "How many, the newest first.", "-n", "--limit", least=1)] = 30,
    all: Annotated[bool, flag("--all", "All of them.")] = False,
    json: Annotated[
        bool, flag("--json", "Print the rows as JSON; the columns of `artefacts`, see format.md.")
    ] = False,
) -> None:
    """List the profiles and probes of a store, or of any folder, the newest first.

    [bold]Examples[/bold]

      stash list runs/
      stash list s3://bucket/runs --limit 100
      stash list --all --json | jq '.[].step_seconds'
    """
    from stash.cli.storing import needed, say_unreadable, url_or_option
    from stash.keep.store.tables import TABLES

    opened = needed(url_or_option(url, store))
    contents = opened.contents()
    there = len(contents.stored) + len(contents.loose)
    wanted = there if all else min(limit, there)
    rows = _newest(opened, contents.stored, contents.loose, wanted)
    if json:
        names = [column.name for column in TABLES["artefacts"]]
        print(strict_json([dict(zip(names, row, strict=True)) for row in rows]))
    else:
        _print(rows, there - len(rows) - len(opened.unreadable), opened.url)
    say_unreadable(opened)


def _newest(store: Store, stored: list[str], loose: list[str], wanted: int) -> list[TableRow]:
    """The rows of ``artefacts``, as many as wanted, the newest first."""
    from stash.keep.store.compaction import newest

    if wanted >= _FROM_TABLES and newest(store) is not None:
        from stash.keep.store import query

        with query(store, f"FROM artefacts ORDER BY created DESC, id LIMIT {wanted}") as answer:
            return [list(row) for row in answer.rows()]
    rows = list(store.heads([*stored[:wanted], *loose[:wanted]]))
    rows.sort(key=lambda row: (str(row[3]), str(row[0])), reverse=True)
    return rows[:wanted]


def _print(rows: list[TableRow], more: int, url: str) -> None:
    """Into a pipe all columns, in lines of any length, since a program or a pager reads them."""
    from rich.console import Console

    from stash.base.printable import printable_line
    from stash.show.store import artefacts

    if not rows:
        print(printable_line(f"{url} has no artefacts; `stash profile --store {url} train.py` puts one there"))
        return
    limited = sys.stdout.isatty() or os.environ.get("COLUMNS")
    screen = shutil.get_terminal_size().columns if limited else None
    fitted = artefacts(rows, screen)
    Console(highlight=False, width=max(fitted.width, screen or 0)).print(fitted.table)
    notes = [f"{more:,} more; --all shows all"] if more > 0 else []
    if fitted.left_out:
        notes.append(f"Columns that did not fit: {', '.join(fitted.left_out)}; a wider screen or a pipe has them.")
    for note in notes:
        print(note)
