"""Tables of a fleet's reports: columns that line up, the last one wrapped into what is left of the width.

Knows texts; what stands in them is the views' business.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping, Sequence

from rich.text import Text

from stash.show.layout import INDENT

_GAP = "  "
_NARROWEST = 24
"""Of the last column: with less room it goes below its row."""


def table(rows: Sequence[tuple[str, ...]], width: int, texts: frozenset[int] = frozenset({0})) -> list[Text]:
    """Rows, the first being the head; columns are numbers but for those in ``texts`` and the last, which is prose."""
    last = len(rows[0]) - 1
    sizes = [max(len(row[column]) for row in rows) for column in range(last)]
    left = INDENT + sum(sizes) + len(_GAP) * last
    room = width - left
    lines = []
    for number, row in enumerate(rows):
        cells = [
            text.ljust(size) if column in texts else text.rjust(size)
            for column, (text, size) in enumerate(zip(row[:last], sizes, strict=True))
        ]
        head = " " * INDENT + _GAP.join(cells)
        style = "dim" if number == 0 else ""
        if room >= _NARROWEST:
            prose = textwrap.wrap(row[last], room) or [""]
            lines.append(Text((head + _GAP + prose[0]).rstrip(), style=style))
            lines += [Text(" " * left + line, style=style) for line in prose[1:]]
        else:
            lines.append(Text(head.rstrip(), style=style))
            under = textwrap.wrap(row[last], width - 2 * INDENT - 2) if number else []
            lines += [Text(" " * (2 * INDENT + 2) + line, style="dim") for line in under]
    return lines


def ground(on: str) -> str:
    """Where a run was."""
    return "an emulated cluster" if on == "testbed" else "this machine"


def fleet(workers: Mapping[str, int], on_demand: Collection[str] = ()) -> str:
    """``"2 × p3.2xlarge + 4 × g3.8xlarge"``; those ``on_demand`` say so."""
    return " + ".join(
        f"{count} × {name}" + (" on demand" if name in on_demand else "") for name, count in workers.items()
    )
