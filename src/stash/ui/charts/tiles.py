"""The lettering of all charts as SVG: how long words are, and how they are shortened."""

from __future__ import annotations

from markupsafe import Markup

from stash.core.printable import printable_line, shorten_text
from stash.ui.elements import Attribute, element

SIZE = 12
"""Pixels of a letter's height."""
LETTER = 0.56 * SIZE
"""Mean width of a letter of such fonts."""
_MAX_NAME = 40


def shortened_name(text: str, most: int = _MAX_NAME) -> str:
    """A name that fits beside a row: its beginning and its end."""
    line = printable_line(text)
    if len(line) <= most:
        return line
    end = max(1, most // 3)
    return f"{line[: max(1, most - end - 1)]}…{line[-end:]}"


def titled_element(name: str, tip: str, *inside: str, **attributes: Attribute) -> Markup:
    """An element with what pointing at it tells, and what is in it."""
    title = (element("title", shorten_text(printable_line(tip), 300)),) if tip else ()
    return element(name, *title, *inside, **attributes)


def words_at(
    x: float, y: float, text: str, tone: str = "", anchor: str = "", tip: str = ""
) -> Markup:
    """Words whose base line begins at a place, or is anchored to it; ``says`` is what pointing at them tells."""
    return titled_element("text", tip, text or " ", x=x, y=y, class_=tone, text_anchor=anchor)


def length_of(letters: int) -> float:
    """Pixels that so many letters are long, about."""
    return letters * LETTER


def letters_in(room: float) -> int:
    """How many there is room for."""
    return max(4, int(room / LETTER))
