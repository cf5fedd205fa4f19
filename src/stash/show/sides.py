"""A table of two sides and what changed between them, as lines for a terminal.

Knows names, numbers and the word that judges each line; both checks and comparisons lay out theirs with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from stash.derive.comparison import FASTER, SLOWER
from stash.show.layout import INDENT

STYLES = {SLOWER: "color(167)", FASTER: "color(72)"}
_GAP = "  "

Cells = Sequence[str]
"""A line of the table: its name, its numbers, its word."""


def widest_that_fits(layouts: Sequence[Sequence[Cells]], width: int) -> list[Text]:
    """The first of the layouts (heads first, then lines) that is at most ``width`` columns wide, else the last."""
    for lines in layouts:
        columns = [max(map(len, column)) for column in zip(*lines, strict=True)]
        if INDENT + sum(columns) + len(_GAP) * (len(columns) - 1) <= width:
            break
    return [_line(line, columns, dim=not number) for number, line in enumerate(lines)]


def _line(cells: Cells, columns: Sequence[int], dim: bool) -> Text:
    name, *numbers, word = cells
    line = Text(" " * INDENT + name.ljust(columns[0]), style="dim" if dim else "")
    for text, size in zip(numbers, columns[1:-1], strict=True):
        line.append(_GAP + text.rjust(size))
    return line.append(_GAP + word, style=STYLES.get(word, "dim"))
