"""Cells of a matrix as SVG: shades, words, thin bars, hatches; and the names above its columns.

A hatch is drawn line by line, since a pattern that a hidden drawing of the same page defines would not be painted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stash.show.charts.chart import Tile
from stash.show.charts.lettering import SIZE, length_of, letters_in, short, shortened_name, told, words_at

_GAP = 1.5
"""Pixels between a tile's edge and its cell's."""
_BAR, _BETWEEN, _FOOT = 4.0, 2.0, 3.0
_INSET = 5.0
_HATCH = 7.0
_PALEST = 0.07
_HEAD_LINE = 14


def tile(mark: Tile, left: float, top: float, right: float, bottom: float, pointed_at: bool = True) -> str:
    """One tile, which has all the room from ``left`` to ``right`` and from ``top`` to ``bottom``.

    ``pointed_at``: whether anybody can, so that it says something then.
    """
    left, top, right, bottom = left + _GAP, top + _GAP, right - _GAP, bottom - _GAP
    body = _ground(mark, left, top, right, bottom) + _bars(mark, left, right, bottom)
    lines = max((bar.line + 1 for bar in mark.bars), default=0)
    middle = (top + bottom - lines * (_BAR + _BETWEEN)) / 2
    words = next((text for text in mark.texts if length_of(len(text)) <= right - left - 4), "")
    if words:
        tone = "quiet halo" if mark.missing else "quiet" if mark.quiet else ""
        body += words_at((left + right) / 2, middle + 0.36 * SIZE, words, tone, "middle")
    says = mark.says if pointed_at else ""
    if mark.link:
        return told(f'<a href="{mark.link}" tabindex="-1"', "a", says, body)
    return told("<g", "g", says, body) if says else body


def _ground(mark: Tile, left: float, top: float, right: float, bottom: float) -> str:
    box = f'x="{short(left)}" y="{short(top)}" width="{short(right - left)}" height="{short(bottom - top)}"'
    if mark.missing:
        return f'<path class="quiet hatch" d="{_hatch(left, top, right, bottom)}"/>'
    if mark.level is not None:
        strength = _PALEST + (1 - _PALEST) * min(1.0, max(0.0, mark.level))
        return f'<rect class="s-heat" fill-opacity="{short(100 * strength)}%" {box}/>'
    return f'<rect fill-opacity="0" {box}/>'  # what a pointer finds between words


def _hatch(left: float, top: float, right: float, bottom: float) -> str:
    """Lines that rise to the right, each cut off at the tile's edges, and the edges themselves."""
    lines, high = [f"M{short(left)} {short(top)}H{short(right)}V{short(bottom)}H{short(left)}Z"], bottom - top
    start = left - high + _HATCH
    while start < right:
        first, last = max(start, left), min(start + high, right)
        lines.append(
            f"M{short(first)} {short(bottom - (first - start))}L{short(last)} {short(bottom - (last - start))}"
        )
        start += _HATCH
    return "".join(lines)


def _bars(mark: Tile, left: float, right: float, bottom: float) -> str:
    """Each line's track is a whole; bars of one line lie upon each other, the first lowest."""
    drawn, begin, room, high = [], left + _INSET, right - left - 2 * _INSET, short(_BAR)
    for line in sorted({bar.line for bar in mark.bars}):
        y = short(bottom - _FOOT - (line + 1) * _BAR - line * _BETWEEN)
        drawn.append(f'<rect class="track" x="{short(begin)}" y="{y}" width="{short(room)}" height="{high}"/>')
        for bar in (bar for bar in mark.bars if bar.line == line and bar.length > 0):
            wide, faint = short(min(1.0, bar.length) * room), "faint " if bar.faint else ""
            drawn.append(
                f'<rect class="{faint}s-{bar.series}" x="{short(begin)}" y="{y}" width="{wide}" height="{high}"/>'
            )
    return "".join(drawn)


def head_room(columns: Sequence[str], plane: float) -> float:
    """Pixels that the names above ``columns`` need."""
    if not columns:
        return 0.0
    lines = _wrapped(columns, plane)
    if lines is not None:
        return max(map(len, lines)) * _HEAD_LINE + 2
    return length_of(max(len(shortened_name(name, 22)) for name in columns)) + 6


def column_heads(columns: Sequence[str], left: float, plane: float, top: float) -> Iterator[str]:
    """Names above columns: level where they fit in a few lines, else upright."""
    wide, lines = plane / len(columns), _wrapped(columns, plane)
    for number, name in enumerate(columns):
        middle = left + (number + 0.5) * wide
        if lines is None:
            words = words_at(0, 0, shortened_name(name, 22), "quiet")
            yield f'<g transform="translate({short(middle + 4)} {short(top - 5)}) rotate(-90)">{words}</g>'
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
