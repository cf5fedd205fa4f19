"""A derivation as text for a terminal: a label, a value and where it comes from to a line, facts below it."""

from __future__ import annotations

import textwrap

from rich.console import RenderableType
from rich.text import Text

from stash.show.layout import INDENT, Renderer, paragraph, terminal_renderer
from stash.show.plan.explain import Derivation, DerivationLine

_GAP = "  "
_FACT = "- "


def _report(view: Derivation, width: int, colour: bool) -> list[RenderableType]:
    lines = [line for _, part in view.parts for line in part]
    columns = max((len(line.label) for line in lines), default=0), max((len(line.value) for line in lines), default=0)
    parts: list[RenderableType] = [Text(" " * INDENT).append(view.title, style="bold"), Text()]
    parts += paragraph(view.verdict, width, "", "", bold=True)
    for title, its in view.parts:
        parts += [Text(), Text(" " * INDENT).append(title, style="bold")]
        for line in its:
            parts += _line(line, columns, width)
    if view.warnings:
        parts.append(Text())
    for sentence in view.warnings:
        parts += paragraph(sentence, width, "! ", "color(220)")
    return parts


render: Renderer[Derivation] = terminal_renderer(_report, narrowest=60, widest=120)
"""The whole derivation."""


def _line(line: DerivationLine, columns: tuple[int, int], width: int) -> list[Text]:
    labels, values = columns
    left = INDENT + labels + len(_GAP) + values + len(_GAP)
    words = textwrap.wrap(line.text, max(20, width - left), break_on_hyphens=False) or [""]
    first = Text(" " * INDENT).append(line.label.ljust(labels), style="dim").append(_GAP)
    first.append(line.value.rjust(values), style="bold").append(_GAP + words[0], style="dim")
    lines = [first, *(Text(" " * left + more, style="dim") for more in words[1:])]
    under = INDENT + labels + len(_GAP)
    for fact in line.facts:
        wrapped = textwrap.wrap(fact, width - under - len(_FACT), break_on_hyphens=False)
        for number, words_of_it in enumerate(wrapped):
            lead = _FACT if number == 0 else " " * len(_FACT)
            lines.append(Text(" " * under + lead + words_of_it, style="dim"))
    return lines
