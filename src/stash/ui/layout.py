"""What all terminal reports share: what a renderer is, its head, texts fit to print, paragraphs with hanging indents.

Knows no view: each report's own renderer arranges its view into parts, and this turns parts into text.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Protocol, TypeVar

from rich.console import Console, Group, RenderableType
from rich.text import Text

from stash.core.printable import printable_line

INDENT = 2
_NARROWEST = 20
"""Characters of a paragraph beside a label that leaves it no room."""
_ASCII = str.maketrans({
    "±": "+/-", "·": "|", "×": "x", "µ": "u", "−": "-", "–": "-", "…": "...", "─": "-", "→": "->",
})  # fmt: skip
_QUANTITY = re.compile(r"(\d) (µs|us|ms|s|min|[kMGT]?B(?:/s)?|[kMGT]?bit/s)\b")
"""A number and its unit, which a line must not part."""


V = TypeVar("V")
V_contra = TypeVar("V_contra", contravariant=True)


class Renderer(Protocol[V_contra]):
    """Turns a view into text of at most ``width`` columns, ending in a newline, and computes nothing else.

    With ``colour`` it may use 256 colours and any character; without, plain ASCII that survives pipes, logs and mail.
    """

    def __call__(self, view: V_contra, width: int = 80, colour: bool = False) -> str: ...


def terminal_renderer(
    arrange: Callable[[V, int, bool], Sequence[RenderableType]], narrowest: int, widest: int
) -> Renderer[V]:
    """The renderer that prints the parts which ``arrange(view, width, colour)`` returns; it bounds the width."""

    def render(view: V, width: int = 80, colour: bool = False) -> str:
        width = max(narrowest, min(width, widest))
        # Changed before anything is laid out, since some signs become longer.
        fit = each_text(printable_line, view)
        if colour:
            return _printed(arrange(fit, width, colour), width, colour)
        return plain_text(_printed(arrange(each_text(plain_text, fit), width, colour), width, colour))

    return render


def _printed(parts: Sequence[RenderableType], width: int, colour: bool) -> str:
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


def each_text(change: Callable[[str], str], item: Any) -> Any:
    """A view, or part of one, with every text changed, through all its tuples and dataclasses."""
    if isinstance(item, str):
        return change(item)
    if isinstance(item, tuple):
        return tuple(each_text(change, part) for part in item)
    if is_dataclass(item) and not isinstance(item, type):
        changed = {field.name: each_text(change, getattr(item, field.name)) for field in fields(item)}
        return replace(item, **changed)
    return item


def plain_text(text: str) -> str:
    """The same text in ASCII."""
    return text.translate(_ASCII).encode("ascii", "replace").decode("ascii")


def paragraph(
    text: str, width: int, lead: str, lead_style: str, *, bold: bool = False, dim: bool = False
) -> list[Text]:
    """``text`` wrapped with a hanging indent under ``lead``."""
    style = "bold" if bold else "dim" if dim else ""
    room = width - INDENT - len(lead)
    glued = _QUANTITY.sub("\\1\N{NO-BREAK SPACE}\\2", text)
    lines = textwrap.wrap(
        glued, room if room > 0 else _NARROWEST, break_long_words=False, break_on_hyphens=False
    ) or [""]
    lines = [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]
    first = Text(" " * INDENT).append(lead, style=lead_style).append(lines[0], style=style)
    return [first, *(Text(" " * (INDENT + len(lead)) + line, style=style) for line in lines[1:])]
