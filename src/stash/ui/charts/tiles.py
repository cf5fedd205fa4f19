"""Cells of a matrix and the lettering of all charts as SVG: how long words are, and how they are shortened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from stash.core.printable import printable_line, shortened
from stash.ui.charts.chart import Tile, series
from stash.ui.elements import Attribute, element, joined, short

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


def titled(name: str, tip: str, *inside: str, **attributes: Attribute) -> Markup:
    """An element with what pointing at it tells, and what is in it."""
    title = (element("title", shortened(printable_line(tip), 300)),) if tip else ()
    return element(name, *title, *inside, **attributes)


def words_at(x: float, y: float, text: str, tone: str = "", anchor: str = "", tip: str = "") -> Markup:
    """Words whose base line begins at a place, or is anchored to it; ``says`` is what pointing at them tells."""
    return titled("text", tip, text or " ", x=x, y=y, class_=tone, text_anchor=anchor)


def length_of(letters: int) -> float:
    """Pixels that so many letters are long, about."""
    return letters * LETTER


def letters_in(room: float) -> int:
    """How many there is room for."""
    return max(4, int(room / LETTER))


# A hatch is drawn line by line: a pattern of a hidden drawing of the same page would not be painted.

_GAP = 1.5
"""Pixels between a tile's edge and its cell's."""
_BAR, _BETWEEN, _FOOT = 4.0, 2.0, 3.0
_INSET = 5.0
_HATCH = 7.0
_PALEST = 0.07
_HEAD_LINE = 14


def tile(mark: Tile, left: float, top: float, right: float, bottom: float, pointed_at: bool = True) -> Markup:
    """One tile, which has all the room from ``left`` to ``right`` and from ``top`` to ``bottom``.

    ``pointed_at``: whether anybody can, so that it says something then.
    """
    left, top, right, bottom = left + _GAP, top + _GAP, right - _GAP, bottom - _GAP
    body = [_ground(mark, left, top, right, bottom), *_bars(mark, left, right, bottom)]
    lines = max((bar.line + 1 for bar in mark.bars), default=0)
    middle = (top + bottom - lines * (_BAR + _BETWEEN)) / 2
    words = next((text for text in mark.texts if length_of(len(text)) <= right - left - 4), "")
    if words:
        tone = "quiet halo" if mark.missing else "quiet" if mark.quiet else ""
        body.append(words_at((left + right) / 2, middle + 0.36 * SIZE, words, tone, "middle"))
    tip = mark.tip if pointed_at else ""
    if mark.link:
        return titled("a", tip, *body, href=mark.link, tabindex=-1)
    return titled("g", tip, *body) if tip else joined(*body)


def _ground(mark: Tile, left: float, top: float, right: float, bottom: float) -> Markup:
    if mark.missing:
        return element("path", class_="quiet hatch", d=_hatch(left, top, right, bottom))
    tone, opacity = "", "0"  # what a pointer finds between words
    if mark.level is not None:
        tone, opacity = "s-heat", f"{short(100 * (_PALEST + (1 - _PALEST) * min(1.0, max(0.0, mark.level))))}%"
    return element("rect", class_=tone, fill_opacity=opacity, x=left, y=top, width=right - left, height=bottom - top)


def _hatch(left: float, top: float, right: float, bottom: float) -> str:
    """Lines that rise to the right, each cut off at the tile's edges, and the edges themselves."""
    lines, high = [f"M{short(left)} {short(top)}H{short(right)}V{short(bottom)}H{short(left)}Z"], bottom - top
    start = left - high + _HATCH
    while start < right:
        first, last = max(start, left), min(start + high, right)
        y, up = short(bottom - (first - start)), short(bottom - (last - start))
        lines.append(f"M{short(first)} {y}L{short(last)} {up}")
        start += _HATCH
    return "".join(lines)


def _bars(mark: Tile, left: float, right: float, bottom: float) -> Iterator[Markup]:
    """Each line's track is a whole; bars of one line lie upon each other, the first lowest."""
    begin, room = left + _INSET, right - left - 2 * _INSET
    for line in sorted({bar.line for bar in mark.bars}):
        y = bottom - _FOOT - (line + 1) * _BAR - line * _BETWEEN
        yield element("rect", class_="track", x=begin, y=y, width=room, height=_BAR)
        for bar in (bar for bar in mark.bars if bar.line == line and bar.length > 0):
            tone, wide = series(bar.series, "faint" if bar.faint else ""), min(1.0, bar.length) * room
            yield element("rect", class_=tone, x=begin, y=y, width=wide, height=_BAR)


def head_room(columns: Sequence[str], plane: float) -> float:
    """Pixels that the names above ``columns`` need."""
    if not columns:
        return 0.0
    lines = _wrapped(columns, plane)
    if lines is not None:
        return max(map(len, lines)) * _HEAD_LINE + 2
    return length_of(max(len(shortened_name(name, 22)) for name in columns)) + 6


def column_heads(columns: Sequence[str], left: float, plane: float, top: float) -> Iterator[Markup]:
    """Names above columns: level where they fit in a few lines, else upright."""
    wide, lines = plane / len(columns), _wrapped(columns, plane)
    for number, name in enumerate(columns):
        middle = left + (number + 0.5) * wide
        if lines is None:
            words = words_at(0, 0, shortened_name(name, 22), "quiet")
            yield element("g", words, transform=f"translate({short(middle + 4)} {short(top - 5)}) rotate(-90)")
            continue
        for up, line in enumerate(reversed(lines[number])):
            yield words_at(middle, top - 6 - up * _HEAD_LINE, line, "quiet", "middle")


def _wrapped(columns: Sequence[str], plane: float) -> list[list[str]] | None:
    """Every name in lines that fit its column; ``None`` where a word does not."""
    most = letters_in(plane / len(columns) - 2)
    found = []
    for name in columns:
        lines: list[str] = []
        for word in name.split():
            if len(word) > most:
                return None
            if lines and len(lines[-1]) + 1 + len(word) <= most:
                lines[-1] += f" {word}"
            else:
                lines.append(word)
        found.append(lines or [""])
    return found
