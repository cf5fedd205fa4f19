"""A plan and what was measured of it as text for a terminal: the verdict, the stalls side by side, what failed."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from stash.derive.comparison import SLOWER
from stash.show.layout import INDENT, Renderer, paragraph, terminal_renderer
from stash.show.plan.checked import CheckedPlanView, CheckedRow
from stash.show.sides import STYLES, widest_that_fits


def _report(view: CheckedPlanView, width: int, colour: bool) -> list[RenderableType]:
    head = Text(" " * INDENT).append(view.title, style="bold")
    return [
        head, *paragraph(view.choice, width, "", "", dim=True),
        Text(), *paragraph(view.verdict, width, "", "", bold=True),
        Text(), *_table(view, width), Text(), *_totals(view, width), *_failed(view, width), *_end(view, width),
    ]  # fmt: skip


render_checked: Renderer[CheckedPlanView] = terminal_renderer(_report, narrowest=60, widest=120)
"""The whole check."""


def _table(view: CheckedPlanView, width: int) -> list[Text]:
    """As much of each line as fits: first origins go, then the two sides' own spread."""
    heads = CheckedRow("", "planned", "", f"measured, {view.unit}", "", "change", "planned from", "")
    layouts = (_whole, _without_origin, _without_spread)
    return widest_that_fits([[shown(row) for row in (heads, *view.rows)] for shown in layouts], width)


def _whole(row: CheckedRow) -> tuple[str, ...]:
    name, planned, measured, change, word = _without_origin(row)
    return (name, planned, measured, change, row.origin, word)


def _without_origin(row: CheckedRow) -> tuple[str, ...]:
    planned, measured = f"{row.planned} {row.planned_spread}", f"{row.measured} {row.measured_spread}"
    return (row.name, planned.strip(), measured.strip(), row.change, row.word)


def _without_spread(row: CheckedRow) -> tuple[str, ...]:
    return (row.name, row.planned, row.measured, row.change, row.word)


def _totals(view: CheckedPlanView, width: int) -> Iterator[Text]:
    labels = max(len(label) for label, _, _ in view.totals) + 2
    for label, text, broken in view.totals:
        yield from paragraph(text, width, label.ljust(labels), STYLES[SLOWER] if broken else "dim")


def _failed(view: CheckedPlanView, width: int) -> Iterator[Text]:
    if view.failed:
        yield Text()
        yield Text(" " * INDENT).append("What the plan took for granted and was not so", style="bold")
    for sentence in view.failed:
        yield from paragraph(sentence, width, "- ", "dim")


def _end(view: CheckedPlanView, width: int) -> Iterator[Text]:
    if view.notes or view.again:
        yield Text()
    for note in view.notes:
        yield from paragraph(note, width, "! ", "dim")
    if view.again:
        yield from paragraph(view.again, width, "", "", dim=True)
