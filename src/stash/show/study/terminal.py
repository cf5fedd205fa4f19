"""A study as text for a terminal: the matrix, in as many parts as the screen needs, then what it takes and runs."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from stash.show.layout import INDENT, Renderer, paragraph, terminal_renderer
from stash.show.study.view import StudyView

_GAP = 2
_STYLES = {"done": "color(72)", "failed": "color(167)", "no memory": "color(167)", "too large": "dim", ".": "dim"}
Rows = Sequence[Sequence[str]]


def _report(view: StudyView, width: int, colour: bool) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(" " * INDENT).append(view.title, style="bold")]
    parts += [Text(), *paragraph(view.summary, width, "", "")]
    for part in _in_parts(view.matrix, width):
        parts += [Text(), *_table(part, left=1)]
    if view.takes:
        parts += [Text(), *_table(view.takes, left=1, right=True)]
    for title, lines in (("What failed", view.failures), ("Assumed", view.assumptions)):
        if lines:
            parts += [Text(), Text(" " * INDENT).append(title, style="bold")]
            parts += [line for each in lines for line in paragraph(each, width, "- ", "dim")]
    return [*parts, *([Text()] if view.notes else []), *(p for n in view.notes for p in paragraph(n, width, "", ""))]


render: Renderer[StudyView] = terminal_renderer(_report, narrowest=60, widest=120)
"""Everything but what will be run, whose lines must stay as they are."""


def _in_parts(rows: Rows, width: int) -> list[list[list[str]]]:
    """The table's columns, the first repeated, in tables that fit."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    parts: list[list[int]] = [[]]
    room = width - INDENT - widths[0]
    left = room
    for column in range(1, len(widths)):
        needed = widths[column] + _GAP
        if needed > left and parts[-1]:
            parts.append([])
            left = room
        parts[-1].append(column)
        left -= needed
    return [[[row[0], *(row[column] for column in part)] for row in rows] for part in parts]


def _table(rows: Rows, left: int, right: bool = False) -> list[Text]:
    """Lines of a table whose first row is its head; from column ``left`` on, to the right if wanted."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for number, row in enumerate(rows):
        line = Text(" " * INDENT)
        for column, (cell, wide) in enumerate(zip(row, widths, strict=True)):
            text = cell.rjust(wide) if right and column >= left else cell.ljust(wide)
            line.append(text, style="dim" if number == 0 else _STYLES.get(cell, ""))
            line.append(" " * _GAP)
        lines.append(line)
    return lines


def script(view: StudyView) -> str:
    """What will be run for each cell, as it will be written and typed; empty if none is described."""
    return "".join(f"\n# --- {title}\n{text}\n" for title, text in view.described)
