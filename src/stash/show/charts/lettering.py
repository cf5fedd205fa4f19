"""Words and numbers inside an SVG: how long they are, how they are shortened, what pointing at something tells."""

from __future__ import annotations

from markupsafe import Markup

from stash.base.printable import printable_line, shortened
from stash.show.elements import Attribute, element

SIZE = 12
"""Pixels of a letter's height."""
LETTER = 0.56 * SIZE
"""Mean width of a letter of such fonts."""
_LONGEST_NAME = 40


def shortened_name(text: str, most: int = _LONGEST_NAME) -> str:
    """A name that fits beside a row: its beginning and its end."""
    line = printable_line(text)
    if len(line) <= most:
        return line
    end = max(1, most // 3)
    return f"{line[: max(1, most - end - 1)]}…{line[-end:]}"


def told(name: str, says: str, *inside: str, **attributes: Attribute) -> Markup:
    """An element with what pointing at it tells, and what is in it."""
    title = (element("title", shortened(printable_line(says), 300)),) if says else ()
    return element(name, *title, *inside, **attributes)


def words_at(x: float, y: float, text: str, tone: str = "", anchor: str = "", says: str = "") -> Markup:
    """Words whose base line begins at a place, or is anchored to it; ``says`` is what pointing at them tells."""
    return told("text", says, text or " ", x=x, y=y, class_=tone, text_anchor=anchor)


def length_of(letters: int) -> float:
    """Pixels that so many letters are long, about."""
    return letters * LETTER


def letters_in(room: float) -> int:
    """How many there is room for."""
    return max(4, int(room / LETTER))
