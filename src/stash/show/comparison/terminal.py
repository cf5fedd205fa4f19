"""A comparison as text for a terminal: the verdict, a table of both sides, what else differs."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from stash.show.comparison.view import ComparisonView, Line
from stash.show.layout import INDENT, Renderer, paragraph, terminal_renderer
from stash.show.sides import widest_that_fits


def _report(view: ComparisonView, width: int, colour: bool) -> list[RenderableType]:
    head = Text(" " * INDENT).append(view.title, style="bold")
    sides = [Text(" " * INDENT + side, style="dim") for side in view.sides]
    return [
        head, *sides, Text(), *paragraph(view.verdict, width, "", "", bold=True), Text(),
        *_table(view, width), *_changed(view, width), *_notes(view, width),
    ]  # fmt: skip


render: Renderer[ComparisonView] = terminal_renderer(_report, narrowest=60, widest=120)
"""The whole comparison."""


def _table(view: ComparisonView, width: int) -> list[Text]:
    """As much of each line as fits: first the sides' own spread goes, then the change as a share."""
    heads = Line("", "before", "", f"after, {view.unit}", "", "change", "of step", "")
    layouts = (_whole, _without_spread, _without_share)
    return widest_that_fits([[shown(line) for line in (heads, *view.lines)] for shown in layouts], width)


def _whole(line: Line) -> tuple[str, ...]:
    before, after = f"{line.before} {line.before_spread}".strip(), f"{line.after} {line.after_spread}".strip()
    return (line.name, before, after, line.change, line.share, line.word)


def _without_spread(line: Line) -> tuple[str, ...]:
    return (line.name, line.before, line.after, line.change, line.share, line.word)


def _without_share(line: Line) -> tuple[str, ...]:
    return (line.name, line.before, line.after, line.change, line.word)


def _changed(view: ComparisonView, width: int) -> list[Text]:
    if not view.changed:
        return []
    labels = max(len(label) for label, _ in view.changed) + 2
    parts = [Text(), Text(" " * INDENT).append("What else differs", style="bold")]
    for label, text in view.changed:
        parts += paragraph(text, width, label.ljust(labels), "dim")
    return parts


def _notes(view: ComparisonView, width: int) -> list[Text]:
    return [Text()] * bool(view.notes) + [line for note in view.notes for line in paragraph(note, width, "! ", "dim")]
