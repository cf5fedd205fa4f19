"""The parts of a whole in a terminal: a stacked bar, its legend, and a line for each stall of the step.

With colour bars are made of block characters, without of a letter for each stall.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from stash.ui.page import Row, part_lengths

INDENT = 2
LOOKS = {
    "compute": ("color(72)", "#"),
    "transfer": ("color(74)", "t"),
    "contention": ("color(140)", "x"),
    "bubble": ("color(99)", "b"),
    "interconnect": ("color(221)", "i"),
    "network": ("color(209)", "n"),
    "prep": ("color(169)", "p"),
    "fetch": ("color(167)", "f"),
    "disturbed": ("color(245)", "~"),
    "exchange": ("color(209)", "e"),
    "input": ("color(169)", "i"),
    "host": ("color(221)", "h"),
    "loop": ("color(110)", "l"),
    "start": ("color(167)", "s"),
    "evaluation": ("color(99)", "e"),
    "checkpoint": ("color(209)", "c"),
}
"""Of a series, its style, and its letter where there is no colour."""
_OTHER = "color(245)", "+"
_EIGHTHS = " ▏▎▍▌▋▊▉"
GAP = "  "
MIN_PARAGRAPH = 20
"""Characters of a paragraph beside a label that leaves it no room."""


def style_of(row: Row) -> str:
    """The colour of a row's series."""
    return LOOKS.get(row.series or row.name, _OTHER)[0]


def _letter(row: Row) -> str:
    return LOOKS.get(row.series or row.name, _OTHER)[1]


def stack_bar(rows: Sequence[Row], width: int, plain: bool) -> list[Text]:
    """One bar for the whole; what was measured as negative has no place in it."""
    bar = Text(" " * INDENT)
    for row, count in part_lengths(rows, width - INDENT):
        bar.append((_letter(row) if plain else "█") * count, style=style_of(row))
    return [bar]


def legend(rows: Sequence[Row], width: int, plain: bool) -> list[Text]:
    """What each colour or letter of the bar is, where no table says it."""
    lines = [Text(" " * INDENT)]
    for row in rows:
        key = Text(_letter(row) if plain else "■", style=style_of(row)).append(
            f" {row.name} ", style="default"
        )
        key.append(row.time, style="bold default").append(f" {row.share}", style="dim default")
        if len(lines[-1].plain) > INDENT and len(lines[-1].plain) + len(key.plain) + 3 > width:
            lines.append(Text(" " * INDENT))
        lines[-1].append("" if len(lines[-1].plain) == INDENT else GAP + " ").append_text(key)
    return lines


class StallTable:
    """The stacked bar and the table of stalls (the step is the last row), as wide as the console it is printed on."""

    def __init__(self, rows: Sequence[Row], plain: bool = False) -> None:
        self.rows = rows
        self.plain = plain

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        yield from stack_bar(self.rows[:-1], width, self.plain)
        yield Text()
        yield from stall_lines(self.rows, width, self.plain)


def stall_lines(rows: Sequence[Row], width: int, plain: bool) -> list[Text]:
    """Each measured stall with its interval, its share and a bar or the mark of noise; unknown ones with why."""
    *stalls, step = rows
    measured = [row for row in rows if row.why is None]
    names = max(len(row.name) for row in rows)
    times = max(len(row.time) for row in measured)
    intervals = max(len(row.interval) for row in measured)
    left = INDENT + 2 + names + 2
    bar = width - (left + times + 1 + intervals + 2 + 6 + 2)
    lines = []
    for row in stalls:
        if row.why is not None:
            why = textwrap.wrap(f"unknown: {row.why}", max(MIN_PARAGRAPH, width - left)) or [
                "unknown"
            ]
            head = " " * (INDENT + 2) + row.name.ljust(names + 2)
            lines += [
                Text((" " * left if at else head) + each, style="dim")
                for at, each in enumerate(why)
            ]
            continue
        line = Text(" " * INDENT).append(
            (_letter(row) if plain else "■") + " ", style=style_of(row)
        )
        line.append(row.name.ljust(names + 2), style="bold" if row.strong else "")
        line.append(row.time.rjust(times), style="" if row.within_noise else "bold")
        line.append(" " + row.interval.ljust(intervals) + GAP, style="dim")
        lines.append(line.append(row.share.rjust(6) + GAP).append_text(_row_end(row, bar, plain)))
    total = Text(" " * (INDENT + 2) + step.name.ljust(names + 2)).append(
        step.time.rjust(times), style="bold"
    )
    total.append(" " + step.interval.ljust(intervals) + GAP, style="dim").append(
        step.share.rjust(6)
    )
    rule = Text(" " * (INDENT + 2) + "─" * (len(total.plain) - INDENT - 2), style="dim")
    return [*lines, rule, total]


def _row_end(row: Row, bar: int, plain: bool) -> Text:
    if row.within_noise:
        return Text("(within noise)", style="dim")
    length = max(0.0, min(1.0, row.fraction)) * max(0, bar)
    if plain:
        return Text(_letter(row) * round(length))
    whole = math.floor(length)
    return Text(
        "█" * whole + _EIGHTHS[math.floor((length - whole) * 8)].strip(), style=style_of(row)
    )
