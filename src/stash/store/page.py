"""Rows of a store as tables of text. Everything in them comes from artefacts, so everything is made printable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
Named = dict[str, Any]


def artefact_listing(rows: Sequence[TableRow], width: int | None = None) -> Listing:
    """The list of artefacts, of rows of that table, in the columns that fit ``width``."""
    names = [column.name for column in TABLES["artefacts"]]
    each = [dict(zip(names, row, strict=True)) for row in rows]
    columns: list[tuple[str, int, Callable[[Named], str]]] = [
        ("id", 0, _id),
        ("made (UTC)", 0, lambda row: str(row["created"])[:16].replace("T", " ")),
        ("what", 0, lambda row: row["name"]),
        ("ranks", 2, _ranks),
        ("machine", 4, lambda row: row["machine"] or (_NONE if row["kind"] == "fix" else _UNKNOWN)),
        ("step", 0, _step),
        ("samples/s", 3, _rate),
        ("most", 1, _main_finding),
    ]
    first, *heads = (head for head, _, _ in columns)
    cells = tuple(
        (printable_line(_id(row)), *(_short(cell(row)) for _, _, cell in columns[1:]))
        for row in each
    )
    ranks = tuple(rank for _, rank, _ in columns)
    texts = frozenset({0, 1, 2, 4, 7})
    return make_listing(Grid("", tuple(heads), cells, texts, first=first, ranks=ranks), width)


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


def _id(row: Named) -> str:
    id = str(row["id"])
    return id if str(row["file"]).startswith(id) else id[:SHOWN]  # a file's own name is no hash


def _short(text: str) -> str:
    shown = Text(printable_line(text))
    shown.truncate(_WIDEST, overflow="ellipsis")
    return shown.plain


def _ranks(row: Named) -> str:
    if row["ranks"] is None:
        return _NONE
    return str(row["ranks"]) if row["nodes"] in (None, 1) else f"{row['ranks']} on {row['nodes']}"


def _step(row: Named) -> str:
    if row["kind"] == "probe":
        return _NONE
    return _UNKNOWN if row["step_seconds"] is None else format_seconds(row["step_seconds"])


def _rate(row: Named) -> str:
    if row["kind"] != "profile":
        return _NONE
    return _UNKNOWN if row["samples_per_second"] is None else format_pace(row["samples_per_second"])


def _main_finding(row: Named) -> str:
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
