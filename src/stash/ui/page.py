"""A report as data: what it says first, then chapters of charts, tables and labelled facts. Every renderer's input.

Knows the parts that a report has and none of what is in them.
"""

from __future__ import annotations

from dataclasses import dataclass

from stash.ui.charts.chart import Blank, Chart, Grid


@dataclass(frozen=True)
class Row:
    """One stall: measured (``time``, ``interval``, ``share`` are texts) or not (``why`` is)."""

    name: str
    time: str = ""
    interval: str = ""
    share: str = ""
    fraction: float = 0.0
    """Of the step, as measured: may be negative."""
    within_noise: bool = False
    why: str | None = None


@dataclass(frozen=True)
class Download:
    """A file that is inside the page, for readers to save."""

    name: str
    kind: str
    """Its media type."""
    text: str


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
    downloads: tuple[Download, ...] = ()


@dataclass(frozen=True)
class Page:
    """A report of one artefact, or of several, which are its ``parts``."""

    title: str
    source: str
    """The file, or how many."""
    subtitle: tuple[str, ...] = ()
    verdict: tuple[str, ...] = ()
    """What is said first, a sentence or two each."""
    bar: tuple[Row, ...] = ()
    """The step's measured stalls."""
    rows: tuple[Row, ...] = ()
    """All stalls, and the step as the last."""
    numbers: tuple[tuple[str, str], ...] = ()
    """Label and text of the few numbers that everybody asks for."""
    warnings: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    chapters: tuple[Chapter, ...] = ()
    again: str = ""
    """The command that measures the same again."""
    made: str = ""
    """When, and by what."""
    parts: tuple[Page, ...] = ()

    @property
    def charts(self) -> tuple[Chart, ...]:
        """All charts of this page that can be drawn, without those of its parts."""
        return tuple(chart for chapter in self.chapters for chart in chapter.charts if isinstance(chart, Chart))
