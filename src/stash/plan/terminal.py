"""A plan as text for a terminal, one screen of it; and as the JSON of ``stash recommend --json``."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from stash.plan.records import Choice, RentalPlan
from stash.plan.view import OTHER, WORDS, ChoiceLine, MoneyPart, PlanView, RuleLine
from stash.report.profile_page import LETTERS, STYLES
from stash.ui.layout import INDENT, Renderer, paragraph, terminal_renderer

# Terminal --------------------------------------------------------------------------------------------------
# A plan as text for a terminal, one screen of it: the verdict, where the dollars go, the choices and why not.
#
# Where there is room, why a choice lost stands beside it, else below it. Arranges and wraps, computes nothing but
# widths.

_GAP = "  "
_WORDS = {
    WORDS["chosen"]: "bold color(72)",
    WORDS["tied"]: "color(72)",
    WORDS["front"]: "color(74)",
    WORDS["lost"]: "dim",
    WORDS["infeasible"]: "color(167)",
}
_MIN_BESIDE = 44
"""Letters of a reason that stands beside its choice."""
_STALL = 6
"""The column that goes first where there is little room."""
_OTHER_LETTER, _OTHER_STYLE = "+", "color(245)"


def _report(view: PlanView, width: int, colour: bool) -> list[RenderableType]:
    return [
        *paragraph(f"{view.title} · {view.question}", width, "", ""),
        Text(),
        *paragraph(view.verdict, width, "", "", bold=True),
        *_labelled(view.relaxations, width),
        *_bill(view, width, plain=not colour),
        *_choices(view, width),
        *_rules(view, width),
        *_labelled(view.facts, width),
        *_warnings(view, width),
        Text(),
        *paragraph(view.footer, width, "", "", dim=True),
    ]


render: Renderer[PlanView] = terminal_renderer(_report, narrowest=60, widest=120)
"""The whole plan."""


# Where the dollars go --------------------------------------------------------------------------------------


def _bill(view: PlanView, width: int, plain: bool) -> list[Text]:
    if not view.parts:
        return []
    shown = [part for part in view.parts if part.fraction > 0]
    bar = Text(" " * INDENT)
    whole, reached, drawn = sum(part.fraction for part in shown), 0.0, 0
    for part in shown:
        reached += part.fraction
        upto = round(reached / whole * (width - INDENT))
        letter, style = _look(part)
        bar.append((letter if plain else "█") * (upto - drawn), style=style)
        drawn = upto
    return [Text(), bar, *_legend(view.parts, width, plain)]


def _legend(parts: Sequence[MoneyPart], width: int, plain: bool) -> list[Text]:
    lines = [Text(" " * INDENT)]
    for part in parts:
        letter, style = _look(part)
        key = Text(letter if plain else "■", style=style).append(f" {part.name} ", style="default")
        key.append(part.dollars, style="bold default").append(f" {part.share}", style="dim default")
        if len(lines[-1].plain) > INDENT and len(lines[-1].plain) + len(key.plain) + 2 > width:
            lines.append(Text(" " * INDENT))
        lines[-1].append("" if len(lines[-1].plain) == INDENT else _GAP + " ").append_text(key)
    return lines


def _look(part: MoneyPart) -> tuple[str, str]:
    if part.series == OTHER:
        return _OTHER_LETTER, _OTHER_STYLE
    return LETTERS[part.series], STYLES[part.series]


# The choices -----------------------------------------------------------------------------------------------


def _choices(view: PlanView, width: int) -> list[Text]:
    if not view.lines:
        return []
    heads = ChoiceLine("", "", "time", "cost", "on time", "in budget", "largest stall", "")
    rows = [_cells(line) for line in (heads, *view.lines)]
    columns = {
        number: max(len(row[number]) for row in rows)
        for number in range(len(rows[0]))
        if any(row[number] for row in rows[1:])
    }
    whys = [line.why for line in view.lines]
    if _wide(columns) - len(_GAP) > width and _STALL in columns:
        del columns[_STALL]
        whys = [_with_stall(line) for line in view.lines]
    beside = _wide(columns) if width - _wide(columns) >= _MIN_BESIDE else 0
    lines = [Text(), _row(rows[0], columns, head=True)]
    for row, why in zip(rows[1:], whys, strict=True):
        lines += _with_reason(_row(row, columns), why, beside, INDENT + columns[0] + len(_GAP), width)
    return [*lines, *(paragraph(view.more, width, "", "", dim=True) if view.more else [])]


def _with_stall(line: ChoiceLine) -> str:
    said = not line.stall or "stall" in line.why
    return line.why if said else "; ".join(filter(None, (line.why, f"largest stall: {line.stall}")))


def _wide(columns: dict[int, int]) -> int:
    """Letters of a row, with the gap behind it."""
    return INDENT + sum(columns.values()) + len(_GAP) * len(columns)


def _cells(line: ChoiceLine) -> tuple[str, ...]:
    return line.word, line.name, line.time, line.cost, line.on_time, line.in_budget, line.stall


def _row(row: Sequence[str], columns: dict[int, int], head: bool = False) -> Text:
    text = Text(" " * INDENT)
    for number, size in columns.items():
        cell = row[number].rjust(size) if number in (2, 3, 4, 5) else row[number].ljust(size)
        style = "dim" if head else _WORDS.get(row[0], "") if number == 0 else "bold" if number == 1 else ""
        text.append(cell, style=style).append(_GAP)
    return text


def _with_reason(row: Text, why: str, beside: int, below: int, width: int) -> list[Text]:
    """The row with its reason: from column ``beside`` on, or if that is 0 in lines of its own from ``below`` on."""
    left = beside or below
    words = textwrap.wrap(why, width - left, break_on_hyphens=False)
    rest = [Text(" " * left + line, style="dim") for line in (words[1:] if beside else words)]
    row.rstrip()
    if beside and words:
        row.append(" " * (beside - len(row.plain)) + words[0], style="dim")
    return [row, *rest]


# Rules and the rest ----------------------------------------------------------------------------------------


def _rules(view: PlanView, width: int) -> list[Text]:
    if not view.rules:
        return []
    heads = RuleLine("how people choose", "would rent", "costs more", "takes", "")
    rows = [(line.rule, line.rents, line.dollars, line.time) for line in (heads, *view.rules)]
    columns = {number: max(len(row[number]) for row in rows) for number in range(4)}
    left = INDENT + sum(columns.values()) + len(_GAP) * 4
    lines = [Text()]
    for number, (line, row) in enumerate(zip((heads, *view.rules), rows, strict=True)):
        text = Text(" " * INDENT, style="dim" if number == 0 else "")
        for column, size in columns.items():
            text.append(row[column].rjust(size) if column > 1 else row[column].ljust(size)).append(_GAP)
        beside = left if len(line.remark) <= width - left else 0
        lines += _with_reason(text, line.remark, beside, INDENT + 2, width)
    return lines


def _labelled(pairs: Sequence[tuple[str, str]], width: int) -> list[Text]:
    labels = max((len(label) for label, _ in pairs), default=0) + 2
    lines = [line for label, text in pairs for line in paragraph(text, width, label.ljust(labels), "bold")]
    return [Text(), *lines] if lines else []


def _warnings(view: PlanView, width: int) -> list[Text]:
    found = [line for sentence in view.warnings for line in paragraph(sentence, width, "! ", "color(220)")]
    return [Text(), *found] if found else []


# Contract --------------------------------------------------------------------------------------------------
# The document that ``stash recommend --json`` prints: a contract, see docs/format.md.
#
# It is the plan's record, with what is derived from it added, so that it can be read back as a ``*.plan.json``.


def document(plan: RentalPlan) -> dict[str, Any]:
    """Of one plan; seconds, bytes and dollars; what is not known is null."""
    told = plan.model_dump(mode="json")
    told["choices"] = [
        {**_derived(choice), **written} for choice, written in zip(plan.choices, told["choices"], strict=True)
    ]
    return {"chosen": None if plan.chosen is None else plan.chosen.name, **told}


def _derived(choice: Choice) -> dict[str, Any]:
    return {"name": choice.name, "samples_per_second": choice.samples_per_second}
