"""A probe's view as text for a terminal: what each machine is, its links, its findings, what to do next.

Arranges and wraps, computes nothing but widths.
"""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from stash.show.grid import Grid
from stash.show.layout import INDENT, Renderer, paragraph, terminal_renderer
from stash.show.probe.view import ProbeView, Sheet


def _report(view: ProbeView, width: int, colour: bool) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for machine in view.machines:
        parts += [*_machine(machine, width), Text()]
    for grid in view.grids:
        parts += [*_grid(grid, width), Text()]
    return [*parts, *_sentences(view, width)]


render: Renderer[ProbeView] = terminal_renderer(_report, narrowest=80, widest=120)
"""The whole report."""


def _machine(machine: Sheet, width: int) -> list[Text]:
    label = max(len(name) for name, _ in machine.facts) + 2
    lines = [Text(" " * INDENT).append(machine.title, style="bold")]
    for name, text in machine.facts:
        lines += paragraph(text, width, name.ljust(label), "dim")
    return lines


def _grid(grid: Grid, width: int) -> list[RenderableType]:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    # A short title stands in the first column's head, a long one would widen the column.
    fits = len(grid.title) <= max(len(row[0]) for row in grid.rows)
    corner = Text(" " * INDENT).append(grid.title, style="bold not dim")
    for number, name in enumerate((corner if fits else "", *grid.head)):
        text, last = number in grid.texts, number == len(grid.head)
        table.add_column(name, justify="left" if text else "right", no_wrap=not (text and last), overflow="fold")
    for first, *cells in grid.rows:
        table.add_row(Text(" " * INDENT + first), *map(Text, cells))
    below = paragraph(grid.below, width, "", "", dim=True) if grid.below else []
    return [*([] if fits else [corner]), table, *below]


def _sentences(view: ProbeView, width: int) -> list[Text]:
    lines: list[Text] = []
    for finding in view.findings:
        lines += paragraph(finding, width, "! " if view.findings != ("No findings.",) else "", "color(220)")
    if view.next_steps:
        lines.append(Text())
    for number, step in enumerate(view.next_steps, 1):
        lines += paragraph(step, width, f"{number}. ", "bold")
    label = max(len(name) for name, _ in view.notes) + 2
    lines.append(Text())
    for name, text in view.notes:
        lines += paragraph(text, width, name.ljust(label), "dim", dim=True)
    return lines
