"""A view as text for a terminal: the verdict, the step as a stacked bar, a table of stalls, next steps; then details.

With colour bars are made of block characters, without of a letter for each stall. Arranges and wraps, computes
nothing but widths.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from stash.show.layout import INDENT, Renderer, paragraph, terminal_renderer
from stash.show.profile.view import Row, View

STYLES = {
    "compute": "color(72)",
    "transfer": "color(74)",
    "contention": "color(140)",
    "interconnect": "color(221)",
    "network": "color(209)",
    "prep": "color(169)",
    "fetch": "color(167)",
}
LETTERS = {
    "compute": "#",
    "transfer": "t",
    "contention": "x",
    "interconnect": "i",
    "network": "n",
    "prep": "p",
    "fetch": "f",
}
_EIGHTHS = " ▏▎▍▌▋▊▉"


def _report(view: View, width: int, colour: bool) -> list[RenderableType]:
    return [
        _header(view, width),
        *_verdict(view, width),
        stall_table(view, plain=not colour),
        *_next_steps(view, width),
        *_details(view, width),
        *_words(view, width),
    ]


render: Renderer[View] = terminal_renderer(_report, narrowest=60, widest=110)
"""The whole report."""


class stall_table:  # noqa: N801 - used like a function: stall_table(view) is a rich renderable
    """The stacked bar and the table of a view's stalls, as wide as the console it is printed on."""

    def __init__(self, view: View, plain: bool = False) -> None:
        self.view = view
        self.plain = plain

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _table(self.view, options.max_width, self.plain)


def _table(view: View, width: int, plain: bool) -> list[Text]:
    measured = [row for row in (*view.rows, view.total) if row.why is None]
    names = max(len(row.name) for row in (*view.rows, view.total))
    times = max(len(row.time) for row in measured)
    intervals = max(len(row.interval) for row in measured)
    left = INDENT + 2 + names + 2
    bar = width - (left + times + 1 + intervals + 2 + 6 + 2)
    lines = [_stacked(view.rows, width - INDENT, plain), Text()]
    for row in view.rows:
        line = _marker(row, plain).append(row.name.ljust(names + 2), style=_name_style(row, view))
        if row.why is not None:
            lines.extend(_unknown(line, row.why, left, width))
            continue
        line.append(row.time.rjust(times), style="" if row.within_noise else "bold")
        line.append(" " + row.interval.ljust(intervals) + "  ", style="dim")
        line.append(row.share.rjust(6) + "  ")
        lines.append(line.append_text(_row_end(row, bar, plain)))
    total = Text(" " * (INDENT + 2) + view.total.name.ljust(names + 2))
    total.append(view.total.time.rjust(times), style="bold")
    total.append(" " + view.total.interval.ljust(intervals) + "  ", style="dim").append(view.total.share.rjust(6))
    rule = Text(" " * (INDENT + 2) + "─" * (len(total.plain) - INDENT - 2), style="dim")
    return [*lines, rule, total]


def _name_style(row: Row, view: View) -> str:
    return "dim" if row.why is not None else "bold" if row.name in view.stalls else ""


def _marker(row: Row, plain: bool) -> Text:
    if row.why is not None:
        return Text(" " * (INDENT + 2))
    glyph = LETTERS[row.name] if plain else "■"
    return Text(" " * INDENT).append(glyph + " ", style=STYLES[row.name])


def _unknown(line: Text, why: str, left: int, width: int) -> list[Text]:
    wrapped = textwrap.wrap(f"unknown: {why}", max(20, width - left)) or ["unknown"]
    rest = [Text(" " * left + text, style="dim") for text in wrapped[1:]]
    return [line.append(wrapped[0], style="dim"), *rest]


def _row_end(row: Row, bar: int, plain: bool) -> Text:
    if row.within_noise:
        return Text("(within noise)", style="dim")
    length = max(0.0, min(1.0, row.fraction)) * max(0, bar)
    if plain:
        return Text(LETTERS[row.name] * round(length))
    whole = math.floor(length)
    end = _EIGHTHS[math.floor((length - whole) * 8)].strip()
    return Text("█" * whole + end, style=STYLES[row.name])


def _stacked(rows: tuple[Row, ...], width: int, plain: bool) -> Text:
    """One bar for the whole step; stalls measured as negative have no place in it."""
    shown = [row for row in rows if row.why is None and row.fraction > 0]
    whole = sum(row.fraction for row in shown) or 1.0
    bar, done, drawn = Text(" " * INDENT), 0.0, 0
    for row in shown:
        done += row.fraction / whole
        upto = round(done * width)
        bar.append((LETTERS[row.name] if plain else "█") * (upto - drawn), style=STYLES[row.name])
        drawn = upto
    return bar


def _header(view: View, width: int) -> Text:
    header = Text(" " * INDENT).append(view.title, style="bold")
    for part in view.subtitle:
        header.append("  ·  " if width >= 100 else " · ", style="dim").append(part)
    if len(header.plain) > width:
        lines = textwrap.wrap(" · ".join(view.subtitle), width - INDENT)
        header = Text(" " * INDENT).append(view.title, style="bold")
        for line in lines:
            header.append("\n" + " " * INDENT + line)
    return header.append("\n")


def _verdict(view: View, width: int) -> list[Text]:
    return [*paragraph(view.verdict, width, "", _style(view), bold=True), Text()] if view.verdict else []


def _style(view: View) -> str:
    """The colour of what dominates, if one stall does."""
    return STYLES.get(view.stalls[0], "") if len(view.stalls) == 1 else ""


def _next_steps(view: View, width: int) -> list[Text]:
    parts = [Text()] if view.next_steps else []
    for number, step in enumerate(view.next_steps, 1):
        parts += paragraph(step, width, f"{number}. ", _style(view))
    return parts


def _details(view: View, width: int) -> list[Text]:
    facts = [*view.facts, *(("note", note) for note in view.notes)]
    facts += [("measured", view.footer)] if view.footer else []
    if not facts and not view.warnings:
        return []
    parts = [Text(), Text(" " * INDENT).append(view.details, style="bold")]
    for warning in view.warnings:
        parts += paragraph(warning, width, "! ", "color(220)")
    return [*parts, *_labelled(facts, width, dim=True)]


def _words(view: View, width: int) -> list[Text]:
    if not view.words:
        return []
    return [Text(), Text(" " * INDENT).append("Words", style="bold"), *_labelled(view.words, width)]


def _labelled(pairs: Sequence[tuple[str, str]], width: int, dim: bool = False) -> list[Text]:
    """Texts under each other, with their labels in a column of their own."""
    labels = max((len(label) for label, _ in pairs), default=0)
    return [line for label, text in pairs for line in paragraph(text, width, label.ljust(labels + 2), "dim", dim=dim)]
