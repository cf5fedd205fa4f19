"""A report as data: what it says first, then chapters of charts, tables and labelled facts. Every renderer's input.

Knows the parts that a report has and none of what is in them. All of a page is shown as HTML and Markdown; a terminal
shows its head, its ``grids`` and the chapters that are ``brief``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stash.ui.charts.chart import Blank, Grid

if TYPE_CHECKING:
    from stash.ui.charts.builders import Chart


@dataclass(frozen=True)
class Row:
    """One part of a whole, like a stall of a step: measured (``time``, ``share`` are texts) or not (``why`` is)."""

    name: str
    time: str = ""
    """How much, with its unit."""
    interval: str = ""
    share: str = ""
    fraction: float = 0.0
    """Of the whole, as measured: may be negative."""
    within_noise: bool = False
    why: str | None = None
    strong: bool = False
    """Whether it may be the largest stall, about which the verdict is."""
    series: str = ""
    """Whose colour it has; empty: that of its name."""


def part_lengths(rows: Sequence[Row], width: int) -> Iterator[tuple[Row, int]]:
    """How many of ``width`` cells of a bar each measured part gets: as many as end before the share reached with it.

    What was measured as negative has no place in it.
    """
    shown = [row for row in rows if row.why is None and row.fraction > 0]
    whole = sum(row.fraction for row in shown)
    reached = 0.0
    drawn = 0
    for row in shown:
        reached += row.fraction / whole
        upto = round(reached * width)
        yield row, upto - drawn
        drawn = upto


@dataclass(frozen=True)
class Chapter:
    """One part of a report, with a name that is unique on its page."""

    name: str
    title: str
    label: str = ""
    """One word for it, where there is little room."""
    text: str = ""
    charts: tuple[Chart | Blank, ...] = ()
    grids: tuple[Grid, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    """Label and text."""
    points: tuple[str, ...] = ()
    """Sentences, one below the other."""
    folded: bool = False
    """Whether it is for those who look for it."""
    brief: bool = False
    """Whether a terminal shows it too, its charts as their tables."""
    most: int = 0
    """Points that a terminal shows, of as many as there are; 0: all."""


@dataclass(frozen=True)
class Page:
    """A report of one artefact, or of several, which are its ``parts``."""

    title: str
    source: str = ""
    """The file, or how many."""
    subtitle: tuple[str, ...] = ()
    verdict: tuple[str, ...] = ()
    """The first sentences of the page, one or two each."""
    bar: tuple[Row, ...] = ()
    """The known parts of a whole, like the stalls of a step; those below zero have no place in it."""
    bar_title: str = ""
    rows: tuple[Row, ...] = ()
    """All stalls, and the step as the last; without them a legend explains the bar."""
    below_rows: str = ""
    """A quiet sentence about parts that have no row."""
    numbers: tuple[tuple[str, str], ...] = ()
    """Label and text of the few numbers that everybody asks for, where there is room to repeat them."""
    grids: tuple[Grid, ...] = ()
    """The tables that the verdict rests on."""
    warnings: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    chapters: tuple[Chapter, ...] = ()
    footer: str = ""
    """How it was found, in a sentence."""
    again: str = ""
    """The command that measures the same again."""
    made: str = ""
    """When, and by what."""
    parts: tuple[Page, ...] = ()

    @property
    def charts(self) -> tuple[Chart, ...]:
        """All charts of this page that can be drawn, without those of its parts."""
        return tuple(
            chart
            for chapter in self.chapters
            for chart in chapter.charts
            if not isinstance(chart, Blank)
        )
