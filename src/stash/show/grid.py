"""One table as text, whatever renders it: behind every chart, and of every kind of fact that has columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class GridLink:
    """A part of a cell's text, and where it leads; to nowhere if ``to`` is empty."""

    text: str
    to: str = ""


@dataclass(frozen=True)
class Grid:
    """One table under its title. Columns are numbers unless named in ``texts``; the first has no head."""

    title: str
    head: tuple[str, ...]
    """Of the columns after the first."""
    rows: tuple[tuple[str, ...], ...]
    texts: frozenset[int]
    below: str = ""
    """A sentence under the table."""
    first: str = ""
    """What the first column holds, where a renderer has to say it."""
    filters: tuple[int, ...] = ()
    """Columns by whose values rows are chosen, where a reader can."""
    anchors: tuple[str, ...] = ()
    """Of rows, what links lead to; empty, or one each."""
    links: Mapping[tuple[int, int], tuple[GridLink, ...]] = field(default_factory=dict)
    """By row and column: what the cell's text is made of."""
