"""Tables for a terminal: columns that fit the width, the least important left out, the last one wrapped."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from stash.ui.layout import INDENT

# Fitted ----------------------------------------------------------------------------------------------------
# A list as a table of one line each, in as many columns as fit: the least important are left out, none is wrapped.
#
# Knows nothing of what is listed; cells come as text that may be printed.

_GAP = 2


@dataclass(frozen=True)
class Column:
    """One column of the list; where the screen is too narrow, those of the highest ``rank`` are left out first."""

    head: str
    rank: int
    cells: tuple[str, ...]
    right: bool = False

    @property
    def width(self) -> int:
        return max(map(len, (self.head, *self.cells)))


@dataclass(frozen=True)
class Listing:
    """The list as it fits: what is printed, how wide that is, and the heads of the columns left out."""

    table: Table
    width: int
    left_out: tuple[str, ...]


def fitted(every: Sequence[Column], width: int | None = None) -> Listing:
    """The columns that fit ``width`` (``None``: all of them); those of rank 0 are never left out."""
    shown = list(every)
    while width is not None and _total(shown) > width and any(column.rank for column in shown):
        last = max(shown, key=lambda column: column.rank)
        shown = [column for column in shown if column is not last]
    made = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="dim")
    for column in shown:
        made.add_column(Text(column.head), justify="right" if column.right else "left", no_wrap=True)
    for row in zip(*(column.cells for column in shown), strict=True):
        made.add_row(*map(Text, row))
    return Listing(made, _total(shown), tuple(column.head for column in every if column not in shown))


def _total(columns: Sequence[Column]) -> int:
    return sum(column.width for column in columns) + _GAP * (len(columns) - 1)


# Rows ------------------------------------------------------------------------------------------------------
# Tables of a fleet's reports: columns that line up, the last one wrapped into what is left of the width.
#
# Knows texts; what stands in them is the views' business.

_ROW_GAP = "  "
_NARROWEST = 24
"""Of the last column: with less room it goes below its row."""


def table(rows: Sequence[tuple[str, ...]], width: int, texts: frozenset[int] = frozenset({0})) -> list[Text]:
    """Rows, the first being the head; columns are numbers but for those in ``texts`` and the last, which is prose."""
    last = len(rows[0]) - 1
    sizes = [max(len(row[column]) for row in rows) for column in range(last)]
    left = INDENT + sum(sizes) + len(_ROW_GAP) * last
    room = width - left
    lines = []
    for number, row in enumerate(rows):
        cells = [
            text.ljust(size) if column in texts else text.rjust(size)
            for column, (text, size) in enumerate(zip(row[:last], sizes, strict=True))
        ]
        head = " " * INDENT + _ROW_GAP.join(cells)
        style = "dim" if number == 0 else ""
        if room >= _NARROWEST:
            prose = textwrap.wrap(row[last], room) or [""]
            lines.append(Text((head + _ROW_GAP + prose[0]).rstrip(), style=style))
            lines += [Text(" " * left + line, style=style) for line in prose[1:]]
        else:
            lines.append(Text(head.rstrip(), style=style))
            under = textwrap.wrap(row[last], width - 2 * INDENT - 2) if number else []
            lines += [Text(" " * (2 * INDENT + 2) + line, style="dim") for line in under]
    return lines


def ground(on: str) -> str:
    """Where a run was."""
    return "an emulated cluster" if on == "testbed" else "this machine"


def fleet(workers: Mapping[str, int], on_demand: Collection[str] = ()) -> str:
    """``"2 × p3.2xlarge + 4 × g3.8xlarge"``; those ``on_demand`` say so."""
    return " + ".join(
        f"{count} × {name}" + (" on demand" if name in on_demand else "") for name, count in workers.items()
    )
