"""Rows of a store as tables of text. Everything in them comes from artefacts, so everything is made printable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from stash.core.printable import printable_line
from stash.core.units import format_count, format_pace, format_seconds
from stash.store.schema import TABLES, TableRow
from stash.store.storage import SHOWN
from stash.ui.charts.chart import Grid
from stash.ui.terminal import Listing, make_listing

_WIDEST = 28
"""Columns of a name in a list; an id, which people type, is whole."""
_UNKNOWN = "?"
_NONE = "-"


def artefact_listing(rows: Sequence[TableRow], width: int | None = None) -> Listing:
    """The list of artefacts, of rows of that table, in the columns that fit ``width``."""
    names = [column.name for column in TABLES["artefacts"]]
    heads = ("made (UTC)", "what", "ranks", "machine", "step", "samples/s", "most")
    cells = tuple(_artefact_cells(dict(zip(names, row, strict=True))) for row in rows)
    ranks = (0, 0, 0, 2, 4, 0, 3, 1)
    texts = frozenset({0, 1, 2, 4, 7})
    return make_listing(Grid("", heads, cells, texts, first="id", ranks=ranks), width)


def _artefact_cells(row: dict[str, Any]) -> tuple[str, ...]:
    kind = row["kind"]
    step, rate, ranks, machine = _UNKNOWN, _UNKNOWN, _NONE, _UNKNOWN
    if kind == "probe":
        step = _NONE
    elif row["step_seconds"] is not None:
        step = format_seconds(row["step_seconds"])
    if kind != "profile":
        rate = _NONE
    elif row["samples_per_second"] is not None:
        rate = format_pace(row["samples_per_second"])
    if row["ranks"] is not None:
        ranks = str(row["ranks"])
        ranks += "" if row["nodes"] in (None, 1) else f" on {row['nodes']}"
    if kind == "fix":
        machine = _NONE
    made = str(row["created"])[:16].replace("T", " ")
    id = str(row["id"])
    # a file's own name is no hash
    shown = id if str(row["file"]).startswith(id) else id[:SHOWN]
    texts = (made, row["name"], ranks, row["machine"] or machine, step, rate, _main_finding(row))
    return printable_line(shown), *map(_short, texts)


def answer_listing(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Listing:
    """What a query gave; numbers to the right, NULL as such."""
    numbers = [
        any(isinstance(row[at], (int, float)) for row in rows)
        and all(row[at] is None or isinstance(row[at], (int, float)) for row in rows)
        for at in range(len(columns))
    ]
    first, *others = (printable_line(head, 100) for head in columns)
    cells = tuple(tuple(_cell(value) for value in row) for row in rows)
    texts = frozenset(at for at, number in enumerate(numbers) if not number)
    return make_listing(Grid("", tuple(others), cells, texts, first=first))


def _short(text: str) -> str:
    shown = Text(printable_line(text))
    shown.truncate(_WIDEST, overflow="ellipsis")
    return shown.plain


def _main_finding(row: dict[str, Any]) -> str:
    """What dominates, of a profile or a trace; how many findings, of a probe; how many changes are kept, of a fix."""
    if row["kind"] == "fix":
        return f"fix, {row['findings'] or 0} kept"
    if row["kind"] == "probe":
        count = row["findings"]
        return "probe, not measured" if count is None else format_count(count, "finding")
    if row["stall"] is None or row["stall_pct"] is None:
        return "unknown" if row["stall"] is None else str(row["stall"])
    return f"{row['stall']} {row['stall_pct']:.0f}%"


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return f"{value:.6g}"
    return printable_line(str(value), 200)
