"""A list as a table of one line each, in as many columns as fit: the least important are left out, none is wrapped.

Knows nothing of what is listed; cells come as text that may be printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

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
