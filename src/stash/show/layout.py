"""What all terminal reports share: paragraphs with hanging indents, ASCII, and printing parts into a string."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

INDENT = 2
_ASCII = str.maketrans({"±": "+/-", "·": "|", "×": "x", "µ": "u", "−": "-", "–": "-", "…": "...", "─": "-"})
_QUANTITY = re.compile(r"(\d) (µs|us|ms|s|min|[kMGT]?B(?:/s)?|Gbit/s)\b")
"""A number and its unit, which a line must not part."""


def printed(parts: Sequence[RenderableType], width: int, colour: bool) -> str:
    """The parts one below the other as lines of at most ``width`` columns, ending in a newline."""
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=colour,
        color_system="256" if colour else None,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
        _environ={},
    )
    with console.capture() as capture:
        console.print(Group(*parts))
    return "\n".join(line.rstrip() for line in capture.get().splitlines()).strip("\n") + "\n"


def plain_text(text: str) -> str:
    """The same in ASCII."""
    return text.translate(_ASCII).encode("ascii", "replace").decode("ascii")


def paragraph(
    text: str, width: int, lead: str, lead_style: str, *, bold: bool = False, dim: bool = False
) -> list[Text]:
    """``text`` wrapped with a hanging indent under ``lead``."""
    style = "bold" if bold else "dim" if dim else ""
    room = width - INDENT - len(lead)
    glued = _QUANTITY.sub("\\1\N{NO-BREAK SPACE}\\2", text)
    lines = textwrap.wrap(glued, room, break_long_words=False, break_on_hyphens=False) or [""]
    lines = [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]
    first = Text(" " * INDENT).append(lead, style=lead_style).append(lines[0], style=style)
    return [first, *(Text(" " * (INDENT + len(lead)) + line, style=style) for line in lines[1:])]
