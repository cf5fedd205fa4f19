"""Words and numbers inside an SVG: how long they are, how they are shortened, what pointing at something tells."""

from __future__ import annotations

from html import escape

from stash.base.printable import printable_line, shortened

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


def told(opened: str, element: str, says: str, body: str = "") -> str:
    """An element that is not closed yet, with what pointing at it tells, and what is in it."""
    if not says and not body:
        return f"{opened}/>"
    title = f"<title>{escape(shortened(printable_line(says), 300))}</title>" if says else ""
    return f"{opened}>{title}{body}</{element}>"


def words_at(x: float, y: float, text: str, tone: str = "", anchor: str = "", says: str = "") -> str:
    """Words whose base line begins at a place, or is anchored to it; ``says`` is what pointing at them tells."""
    kind = f' class="{tone}"' if tone else ""
    placed = f' text-anchor="{anchor}"' if anchor else ""
    opened = f'<text x="{short(x)}" y="{short(y)}"{kind}{placed}'
    return told(opened, "text", says, escape(printable_line(text)) or " ")


def length_of(letters: int) -> float:
    """Pixels that so many letters are long, about."""
    return letters * LETTER


def letters_in(room: float) -> int:
    """How many there is room for."""
    return max(4, int(room / LETTER))


def short(number: float) -> str:
    """A number of pixels without needless digits."""
    return f"{number:.1f}".rstrip("0").rstrip(".")
