"""One table as text, whatever renders it: behind every chart, and of every kind of fact that has columns."""

from __future__ import annotations

from dataclasses import dataclass


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
