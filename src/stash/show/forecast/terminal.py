"""A forecast as text for a terminal: the answer, a table beside what was measured, why, and what comes next."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from stash.show.forecast.view import ForecastLine, ForecastView
from stash.show.layout import INDENT, Renderer, paragraph, terminal_renderer

_GAP = "  "
_ORIGIN = "from"


def _report(view: ForecastView, width: int, colour: bool) -> list[RenderableType]:
    head = Text(" " * INDENT).append(view.title, style="bold").append(f" · {view.question}")
    return [
        head if len(head.plain) <= width else Text("\n").join(_head(view, width)),
        Text(),
        *paragraph(view.verdict, width, "", "", bold=True),
        Text(),
        *_table(view, width),
        *_facts(view, width),
        *_warnings(view, width),
        Text(),
        *paragraph(view.footer, width, "", "", dim=True),
    ]


render: Renderer[ForecastView] = terminal_renderer(_report, narrowest=60, widest=120)
"""The whole answer."""


def _head(view: ForecastView, width: int) -> list[Text]:
    return [*paragraph(view.title, width, "", "", bold=True), *paragraph(view.question, width, "", "")]


def _table(view: ForecastView, width: int) -> list[Text]:
    heads = ForecastLine("", "measured", f"predicted, {view.unit}", "change", _ORIGIN)
    rows = [_cells(line) for line in (heads, *view.lines, view.total)]
    columns = [max(len(row[number]) for row in rows) for number in range(4)]
    left = INDENT + sum(columns) + len(_GAP) * 4
    lines = []
    for number, (row, line) in enumerate(zip(rows, (heads, *view.lines, view.total), strict=True)):
        if number == len(rows) - 1:
            lines.append(Text(" " * INDENT + "─" * (left - INDENT - len(_GAP)), style="dim"))
        lines += _row(row, columns, line.origin, left, width, dim=number == 0)
    return lines


def _cells(line: ForecastLine) -> tuple[str, ...]:
    return (line.name, line.before, line.after, line.change)


def _row(row: Sequence[str], columns: Sequence[int], origin: str, left: int, width: int, dim: bool) -> list[Text]:
    line = Text(" " * INDENT + row[0].ljust(columns[0]), style="dim" if dim else "")
    for number in (1, 2, 3):
        style = "bold" if number == 2 and not dim else "dim" if number == 1 else ""
        line.append(_GAP + row[number].rjust(columns[number]), style=style)
    words = textwrap.wrap(origin, max(12, width - left)) or [""]
    line.append(_GAP + words[0], style="dim")
    return [line, *(Text(" " * left + more, style="dim") for more in words[1:3])]


def _facts(view: ForecastView, width: int) -> list[Text]:
    labels = max((len(label) for label, _ in view.facts), default=0) + 2
    parts, before = [Text()], ""
    for label, text in view.facts:
        parts += paragraph(text, width, ("" if label == before else label).ljust(labels), "bold")
        before = label
    return parts


def _warnings(view: ForecastView, width: int) -> list[Text]:
    found = [line for sentence in view.warnings for line in paragraph(sentence, width, "! ", "color(220)", dim=True)]
    return [Text(), *found] if found else []
