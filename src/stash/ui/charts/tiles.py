"""Boxes, and the lettering of all charts as SVG: how long words are, and how they are shortened."""

from __future__ import annotations

from markupsafe import Markup

from stash.core.printable import printable_line, shorten_text
from stash.ui.charts.chart import Tile
from stash.ui.elements import Attribute, element, join_markup, short_number

# Words and numbers inside an SVG: how long they are, how they are shortened, what pointing at something tells.

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


_GAP = 1.5
"""Pixels between a tile's edge and its cell's."""
_PALEST = 0.07


def tile(
    mark: Tile, left: float, top: float, right: float, bottom: float, pointed_at: bool = True
) -> Markup:
    """One box, which has all the room from ``left`` to ``right`` and from ``top`` to ``bottom``.

    ``pointed_at``: whether anybody can, so that it says something then.
    """
    left = left + _GAP
    top = top + _GAP
    right = right - _GAP
    bottom = bottom - _GAP
    tone = ""
    opacity = "0"  # what a pointer finds between words
    if mark.level is not None:
        tone = "s-heat"
        opacity = (
            f"{short_number(100 * (_PALEST + (1 - _PALEST) * min(1.0, max(0.0, mark.level))))}%"
        )
    body = [
        element(
            "rect",
            class_=tone,
            fill_opacity=opacity,
            x=left,
            y=top,
            width=right - left,
            height=bottom - top,
        )
    ]
    words = next((text for text in mark.texts if length_of(len(text)) <= right - left - 4), "")
    if words:
        body.append(
            words_at((left + right) / 2, (top + bottom) / 2 + 0.36 * SIZE, words, "", "middle")
        )
    return titled_element("g", mark.tip, *body) if mark.tip and pointed_at else join_markup(*body)
