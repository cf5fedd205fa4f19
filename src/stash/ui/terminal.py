"""A page as text for a terminal: the verdict, the whole as a stacked bar, tables that fit, next steps, details.

With colour bars are made of block characters, without of a letter for each stall, and everything is plain ASCII that
survives pipes, logs and mail. Arranges and wraps, computes nothing but widths.
"""

from __future__ import annotations

import io
import math
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.text import Text

from stash.core.printable import has_colours, printable_line
from stash.ui.charts.chart import Blank, Grid
from stash.ui.page import Chapter, Page
from stash.ui.stall_lines import (
    GAP,
    INDENT,
    MIN_PARAGRAPH,
    legend,
    stack_bar,
    stall_lines,
    style_of,
)

NARROWEST, WIDEST = 60, 120
"""Columns: what is asked for beyond them is not."""
_GOOD = "color(72)"
_BAD = "color(167)"
_FAIR = "color(74)"
_WARNING = "color(220)"
_JUDGING = {
    **dict.fromkeys(("rent", "tie", "faster", "done", "yes"), _GOOD),
    **dict.fromkeys(("fails", "slower", "failed", "no memory", "no"), _BAD),
    "front": _FAIR,
    **dict.fromkeys(("lost", "too large", "no difference shown", "."), "dim"),
}
"""Styles of words that judge the row they stand in."""
_ASCII = str.maketrans(
    {
        "±": "+/-",
        "·": "|",
        "×": "x",
        "µ": "u",
        "−": "-",
        "–": "-",
        "…": "...",
        "─": "-",
        "→": "->",
        "ρ": "rho",
        "π": "pi",
        "α": "alpha",
        "\N{NO-BREAK SPACE}": " ",
    }
)
_QUANTITY = re.compile(r"(\d) (µs|us|ms|s|min|[kMGT]?B(?:/s)?|[kMGT]?bit/s)\b")
"""A number and its unit, which a line must not part."""
_MIN_BESIDE, _MAX_LINES_BESIDE = 24, 3
"""Letters and lines of sentences that stand beside their row: with less room, or more lines, they go below it."""
_LEAST_OF_FIRST = 20
"""Letters of a first column beside such sentences, which is wrapped where the others leave it less than it has."""


def print_page(page: Page) -> None:
    """Print ``page`` as it fits the terminal, with colours where they are wanted."""
    print(render(page, *screen_format()), end="")


def screen_format() -> tuple[int, bool]:
    """(columns of the terminal, whether to use its colours)."""
    return shutil.get_terminal_size().columns, has_colours(sys.stdout.isatty(), os.environ)


def list_console(width: int | None = None) -> Console:
    """Standard output, for lines that belong to no page; coloured as pages are."""
    coloured = has_colours(sys.stdout.isatty(), os.environ)
    return Console(
        force_terminal=coloured or None,
        highlight=False,
        width=width,
        color_system="auto" if coloured else None,
    )


def progress_console(quiet: bool = False) -> Console:
    """Where progress goes: standard error, or nowhere. Redrawn on a terminal alone, coloured as the page is."""
    on_terminal = sys.stderr.isatty() and not quiet
    coloured = has_colours(on_terminal, os.environ)
    return Console(
        file=io.StringIO() if quiet else sys.stderr,
        force_terminal=on_terminal,
        no_color=not coloured,
        highlight=False,
    )


def render(page: Page, width: int = 80, colour: bool = False) -> str:
    """The head of a page, its tables and its brief chapters, as lines of at most ``width`` columns."""
    width = max(NARROWEST, min(width, WIDEST))
    fit = each_text(printable_line, _strip_page(page))
    # Changed before anything is laid out, since some signs become longer.
    fit = fit if colour else each_text(plain_text, fit)
    parts: list[RenderableType] = []
    for block in _blocks(fit, width, plain=not colour):
        parts += [*([Text()] if parts and block else []), *block]
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=colour,
        force_jupyter=False,  # where it would show what it prints by itself
        color_system="256" if colour else None,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
        _environ={},
    )
    with console.capture() as capture:
        console.print(Group(*parts))
    text = "\n".join(line.rstrip() for line in capture.get().splitlines()).strip("\n") + "\n"
    return text if colour else plain_text(text)


def _strip_page(page: Page) -> Page:
    """Without what no terminal shows; charts of brief chapters become their tables."""
    shown = []
    for chapter in page.chapters:
        if not chapter.brief:
            continue
        unknown: list[str] = []
        tables: list[Grid] = []
        for chart in chapter.charts:
            if isinstance(chart, Blank):
                unknown.append(f"{chart.title}: unknown, because {chart.why}.")
            else:
                tables.append(chart.table)
        grids = (*tables, *chapter.grids)
        points = (*unknown, *chapter.points)
        shown.append(replace(chapter, charts=(), grids=grids, points=points))
    return replace(page, chapters=tuple(shown), parts=(), numbers=())


def each_text(change: Callable[[str], str], item: Any) -> Any:
    """A page, or part of one, with every text changed, through all its tuples and dataclasses."""
    if isinstance(item, str):
        return change(item)
    if isinstance(item, tuple):
        return tuple(each_text(change, part) for part in item)
    if is_dataclass(item) and not isinstance(item, type):
        changed = {
            field.name: each_text(change, getattr(item, field.name)) for field in fields(item)
        }
        return replace(item, **changed)
    return item


def plain_text(text: str) -> str:
    """The same text in ASCII."""
    return text.translate(_ASCII).encode("ascii", "replace").decode("ascii")


def paragraph(
    text: str,
    width: int,
    lead: str = "",
    lead_style: str = "",
    *,
    bold: bool = False,
    dim: bool = False,
) -> list[Text]:
    """``text`` wrapped with a hanging indent under ``lead``."""
    style = "dim" if dim else ""
    style = "bold" if bold else style
    room = width - INDENT - len(lead)
    glued = _QUANTITY.sub("\\1\N{NO-BREAK SPACE}\\2", text)
    lines = textwrap.wrap(
        glued, room if room > 0 else MIN_PARAGRAPH, break_long_words=False, break_on_hyphens=False
    ) or [""]
    lines = [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]
    first = Text(" " * INDENT).append(lead, style=lead_style).append(lines[0], style=style)
    return [first, *(Text(" " * (INDENT + len(lead)) + line, style=style) for line in lines[1:])]


# A page's parts, in their order.


def _blocks(page: Page, width: int, plain: bool) -> Iterator[list[Text]]:
    """Lines that belong together; blank ones go between."""
    strong = [style_of(row) for row in page.rows if row.strong]
    tone = strong[0] if len(strong) == 1 else ""
    yield _head(page, width)
    yield [line for text in page.verdict for line in paragraph(text, width, "", tone, bold=True)]
    if page.bar:
        keys = [] if page.rows else legend(page.bar, width, plain)
        yield [*stack_bar(page.bar, width, plain), *keys]
    if page.rows:
        below = paragraph(page.below_rows, width, "  ", dim=True) if page.below_rows else []
        yield [*stall_lines(page.rows, width, plain), *below]
    for grid in page.grids:
        yield _grid(grid, width)
    yield [line for text in page.warnings for line in paragraph(text, width, "! ", _WARNING)]
    yield [
        line
        for number, step in enumerate(page.next_steps, 1)
        for line in paragraph(step, width, f"{number}. ", tone or "bold")
    ]
    for chapter in page.chapters:
        yield from _chapter(chapter, width)
    yield paragraph(page.footer, width, dim=True) if page.footer else []


def _head(page: Page, width: int) -> list[Text]:
    """On one line, or the subtitle below the title."""
    separator = "  ·  " if width >= 100 else " · "
    line = Text(" " * INDENT).append(page.title, style="bold")
    for part in page.subtitle:
        line.append(separator, style="dim").append(part)
    if len(line.plain) <= width:
        return [line]
    title = paragraph(page.title, width, bold=True)
    return [*title, *paragraph(" · ".join(page.subtitle), width)] if page.subtitle else title


def _chapter(chapter: Chapter, width: int) -> Iterator[list[Text]]:
    """Its text, facts and points under its title, then its tables, each after a blank line."""
    lines = [Text(" " * INDENT).append(chapter.title, style="bold")]
    lines += paragraph(chapter.text, width) if chapter.text else []
    lines += label_lines(chapter.facts, width)
    shown = chapter.points[: chapter.most or None]
    lines += [line for point in shown for line in paragraph(point, width, "- ", "dim")]
    if len(shown) < len(chapter.points):
        lines += paragraph(
            f"and {len(chapter.points) - len(shown)} more in the HTML report", width, "  ", dim=True
        )
    tables = [
        _grid(replace(each, title="" if each.title == chapter.title else each.title), width)
        for each in chapter.grids
    ]
    if len(lines) == 1 and tables:
        tables[0] = [*lines, *tables[0]]
    else:
        yield lines
    yield from tables


def label_lines(pairs: Sequence[tuple[str, str]], width: int) -> list[Text]:
    """Texts under each other, with their labels in a column of their own."""
    column = max((len(label) for label, _ in pairs), default=0) + 2
    return [
        line for label, text in pairs for line in paragraph(text, width, label.ljust(column), "dim")
    ]


# Tables.


@dataclass(frozen=True)
class Listing:
    """A list as it fits: its lines, how wide they are, and the heads of the columns left out."""

    text: Text
    width: int
    left_out: tuple[str, ...]

    @property
    def note(self) -> str:
        """Which columns did not fit; empty if all did."""
        names = ", ".join(self.left_out)
        return names and f"Columns that did not fit: {names}; a wider screen or a pipe has them."


def list_width() -> int | None:
    """Columns for a list; ``None`` in a pipe: a program or a pager reads lines of any length."""
    limited = sys.stdout.isatty() or os.environ.get("COLUMNS")
    return shutil.get_terminal_size().columns if limited else None


def make_listing(grid: Grid, width: int | None = None) -> Listing:
    """A table of one line a row, not indented, in as many columns as fit ``width`` (``None``: in all of them)."""
    fit = _fit_columns(grid, math.inf if width is None else width)
    return Listing(Text("\n").join(fit.lines(0)), fit.width, fit.left_out)


class _Columns(NamedTuple):
    """The columns of a table that are shown."""

    cells: list[list[str]]
    """Its rows; the heads are the first."""
    are_texts: list[bool]
    """Whether a column stands to the left: others are numbers."""
    left_out: tuple[str, ...] = ()
    """Heads of the columns that did not fit."""

    @property
    def sizes(self) -> list[int]:
        """Columns of the screen that each column of the table takes: letters of some scripts take two."""
        return [max(map(cell_len, column)) for column in zip(*self.cells, strict=True)]

    @property
    def width(self) -> int:
        sizes = self.sizes
        return sum(sizes) + len(GAP) * (len(sizes) - 1)

    @property
    def rule(self) -> Text:
        return Text(" " * INDENT + "─" * self.width, style="dim")

    def pick(self, columns: Sequence[int]) -> _Columns:
        cells = [[row[at] for at in columns] for row in self.cells]
        return _Columns(cells, [self.are_texts[at] for at in columns])

    def lines(self, indent: int = INDENT) -> list[Text]:
        """The head and the rows."""
        sizes = self.sizes
        lines = []
        for number, row in enumerate(self.cells):
            line = Text(" " * indent)
            for place, (text, size) in enumerate(zip(row, sizes, strict=True)):
                pad = " " * (size - cell_len(text))
                shown = text + pad if self.are_texts[place] else pad + text
                style = _JUDGING.get(text, "") if number else "dim"
                line.append(GAP if place else "").append(shown, style=style)
            line.rstrip()
            lines.append(line)
        return lines


def _fit_columns(grid: Grid, width: float) -> _Columns:
    """The columns that fit, those of the highest ranks left out first; empty ones are not shown."""
    cells = [[grid.first, *grid.head], *map(list, grid.rows)]
    texts = grid.texts or {0}
    every = _Columns(cells, [at in texts for at in range(len(cells[0]))])
    shown = [at for at, column in enumerate(zip(*cells, strict=True)) if any(column)]
    ranks = grid.ranks or (0,) * len(cells[0])
    left_out: list[int] = []
    fit = every.pick(shown)
    while fit.width > width and any(ranks[at] for at in shown):
        left_out.append(max(shown, key=ranks.__getitem__))
        shown.remove(left_out[-1])
        fit = every.pick(shown)
    return fit._replace(left_out=tuple(cells[0][at] for at in sorted(left_out)))


def _grid(grid: Grid, width: int) -> list[Text]:
    """A table with its title; its sentences beside or below the rows, and columns that do not fit left out."""
    if not grid.rows:
        return []
    every = _Columns([["", *("" for _ in grid.head)], *map(list, grid.rows)], [])
    if grid.upright and INDENT + every.width > width:
        lines: list[Text] = []
        for number, head in enumerate(grid.head, 1):
            lines += [*([Text()] if lines else []), Text(" " * INDENT).append(head, style="bold")]
            lines += label_lines([(row[0], row[number]) for row in grid.rows], width)
        return lines
    # A short title stands in the first column's head, a long one would widen the column.
    fits = bool(grid.title) and len(grid.title) <= max(len(row[0]) for row in grid.rows)
    shown = replace(grid, first=grid.title) if fits else grid
    title = [Text(" " * INDENT).append(grid.title, style="bold")] if grid.title and not fits else []
    lines = _wrap_last_column(shown, width) if grid.prose else _split_grid(shown, width)
    below = paragraph(grid.below, width, dim=True) if grid.below else []
    return [*title, *lines, *below]


def _split_grid(grid: Grid, width: int) -> list[Text]:
    """In parts, the first column in each, where even the columns that must stay do not fit."""
    fit = _fit_columns(grid, width - INDENT)
    first, *sizes = fit.sizes
    parts: list[list[int]] = [[0]]
    room = width - INDENT - first
    for at, size in enumerate(sizes, 1):
        if len(parts[-1]) > 1 and len(GAP) + size > room:
            parts.append([0])
            room = width - INDENT - first
        parts[-1].append(at)
        room -= len(GAP) + size
    lines: list[Text] = []
    for part in map(fit.pick, parts):
        lines += [Text()] if lines and any(part.cells[0]) else []
        lines += part.lines()
        if grid.total:
            lines.insert(len(lines) - 1, part.rule)
    if fit.left_out:
        every = _Columns([[grid.first, *grid.head], *map(list, grid.rows)], [])
        wide = INDENT + every.width
        names = ", ".join(dict.fromkeys(fit.left_out))
        needs = f"Left out: {names} (needs {wide} columns; in a pipe, COLUMNS={wide})."
        lines += paragraph(needs, width, dim=True)
    return lines


def _wrap_last_column(grid: Grid, width: int) -> list[Text]:
    """The last column wrapped, and what of the others did not fit said in it."""
    last = len(grid.head)
    rest = replace(
        grid,
        head=grid.head[:-1],
        rows=tuple(row[:-1] for row in grid.rows),
        ranks=grid.ranks[:last],
    )
    fit = _fit_columns(rest, width - INDENT)
    dropped = [at for at in range(1, last) if grid.head[at - 1] in fit.left_out]
    prose = []
    for texts in grid.rows:
        others = (f"{grid.head[at - 1]}: {texts[at]}" for at in dropped if texts[at])
        prose.append("; ".join(filter(None, (texts[last], *others))))
    most = max(_LEAST_OF_FIRST, width - INDENT - (fit.width - fit.sizes[0]))
    firsts = []
    for cells in fit.cells[1:]:
        wrapped = textwrap.wrap(cells[0], most, break_on_hyphens=False) or [""]
        firsts.append([cells[0]] if cell_len(cells[0]) <= most else wrapped)
        cells[0] = firsts[-1][0]
    left = INDENT + fit.width + len(GAP)
    room = width - left
    first = fit.sizes[0]
    under = INDENT + first + len(GAP) if first <= 3 * INDENT else 3 * INDENT
    fits = [_stands_beside(text, room) for text in prose]
    mostly = 2 * sum(fits) > len(fits)
    head, *rows = fit.lines()
    lines = [_append_at(head, left, grid.head[-1]) if mostly else head]
    for row, begins, text, is_short in zip(rows, firsts, prose, fits, strict=True):
        if grid.total and row is rows[-1]:
            lines.append(fit.rule)
        beside = mostly and is_short
        words = textwrap.wrap(text, room if beside else width - under, break_on_hyphens=False)
        for line in (row, *(Text(" " * INDENT + more) for more in begins[1:])):
            lines.append(_append_at(line, left, words.pop(0)) if beside and words else line)
        lines += [Text(" " * (left if beside else under) + line, style="dim") for line in words]
    for line in lines:
        line.rstrip()
    return lines


def _stands_beside(text: str, room: int) -> bool:
    """Whether a sentence fits beside its row; a name that is broken in two is no name."""
    most = (_MAX_LINES_BESIDE if room >= _MIN_BESIDE else 2) * room
    return room > 0 and cell_len(text) <= most and all(cell_len(w) <= room for w in text.split())


def _append_at(line: Text, column: int, text: str) -> Text:
    return line.append(" " * (column - line.cell_len) + text, style="dim")
