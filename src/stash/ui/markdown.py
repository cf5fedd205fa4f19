"""A page as GitHub's Markdown, for a pull request or a ticket: verdict, bar, tables; the chapters in folds.

Charts are left out, their tables are not, unless a chapter has the same one. Whatever comes from an artefact is
escaped, so that a host's name makes no link, mentions no user and opens no tag.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from markupsafe import Markup, escape

from stash.core.printable import printable_line
from stash.ui.charts.chart import Blank, Chart, Grid
from stash.ui.elements import element
from stash.ui.page import Chapter, Page, Row

SQUARES = {
    "compute": "🟩",
    "transfer": "🟦",
    "contention": "🟪",
    "bubble": "🔵",
    "interconnect": "🟨",
    "network": "🟧",
    "prep": "🟫",
    "fetch": "🟥",
}
OTHER_SQUARE = "⬜"
END_OF_FOLD = "</details>"
_WIDTH = 40
"""Squares of the bar."""
_MAX_ROWS = 40
"""Of a table: a comment has at most 65,536 characters."""
_TYPED = re.compile("`([^`]+)`")
_QUIET_CODE = re.compile(r"[^|\\<>&]*")
_SPECIAL = re.compile(r"([\\`*_\[\]<>|~$]|^[#+-]|(?<=^\d)\.(?=\s))")


def render(page: Page) -> str:
    """The whole summary, ending in a newline."""
    return "\n".join(_page(page, 2)).strip("\n") + "\n"


def _page(page: Page, level: int) -> Iterator[str]:
    yield f"{'#' * level} {escape_line(page.title)}"
    if page.subtitle:
        yield ""
        yield " · ".join(map(escape_line, page.subtitle))
    for sentence in page.verdict:
        yield ""
        yield f"**{escape_line(sentence)}**"
    if page.bar:
        yield ""
        yield (f"{escape_line(page.bar_title)}: " if page.bar_title else "") + _bar(page.bar)
    if page.rows:
        yield from _stalls(page.rows)
        yield from ("", small_text(escape_line(page.below_rows))) if page.below_rows else ()
    elif page.bar:
        yield ""
        yield " · ".join(
            f"{_square(row)} {escape_line(f'{row.name} {row.time} ({row.share})')}"
            for row in page.bar
        )
    for grid in page.grids:
        yield from _grid(grid)
    yield from _bullet_lines("What to do next", page.next_steps, "1.")
    yield from _bullet_lines("Read with care", page.warnings, "-")
    tables = {grid.rows for chapter in page.chapters for grid in chapter.grids}
    for chapter in page.chapters:
        if not chapter.folded:
            yield from _chapter(chapter, tables)
    if page.again:
        yield from _fold(
            "Measure it again", ["```bash", printable_line(page.again).replace("```", "'''"), "```"]
        )
    for part in page.parts:
        yield from _fold(f"{part.source}: {part.title}", list(_page(part, level + 1)))
    if page.footer:
        yield ""
        yield small_text(escape_line(page.footer))
    if page.made:
        yield ""
        yield small_text(
            f"{escape_line(page.source)}, measured {escape_line(page.made)}; ± are 95% intervals"
        )


def _bar(rows: Sequence[Row]) -> str:
    """Squares by share; each part gets as many as end before the share reached with it."""
    rows = [row for row in rows if row.fraction > 0]
    whole = sum(row.fraction for row in rows)
    reached = 0.0
    drawn = 0
    bar = ""
    for row in rows:
        reached += row.fraction / whole
        upto = round(reached * _WIDTH)
        bar += _square(row) * (upto - drawn)
        drawn = upto
    return bar


def _square(row: Row) -> str:
    return SQUARES.get(row.series or row.name, OTHER_SQUARE)


def _stalls(rows: Sequence[Row]) -> Iterator[str]:
    yield ""
    yield "| | time | 95% | share |"
    yield "|---|---:|---:|---:|"
    for row in rows:
        name = f"{SQUARES.get(row.name, '')} {escape_line(row.name)}".strip()
        if row.why is not None:
            yield f"| {escape_line(row.name)} | unknown | | {escape_line(row.why)} |"
        else:
            noise = " (within noise)" if row.within_noise else ""
            yield (
                f"| {name} | {escape_line(row.time)} | {escape_line(row.interval)}{noise} | "
                f"{escape_line(row.share)} |"
            )


def _bullet_lines(title: str, sentences: Sequence[str], bullet: str) -> Iterator[str]:
    if sentences:
        if title:
            yield ""
            yield f"**{title}**"
        yield ""
        for sentence in sentences:
            yield f"{bullet} {escape_line(sentence)}"


def _chapter(chapter: Chapter, tables: Collection[tuple[tuple[str, ...], ...]]) -> Iterator[str]:
    lines: list[str] = [escape_line(chapter.text)] if chapter.text else []
    for chart in chapter.charts:
        if isinstance(chart, Blank) or chart.table.rows not in tables:
            lines += _chart(chart)
    title = "Findings" if lines or chapter.facts or chapter.grids else ""
    lines += _bullet_lines(title, chapter.points, "-")
    if chapter.facts:
        lines += ["", "| | |", "|---|---|"]
        lines += [
            f"| {escape_line(label)} | {escape_line(text)} |" for label, text in chapter.facts
        ]
    for grid in chapter.grids:
        lines += _grid(grid)
    if lines:
        yield from _fold(chapter.title, lines)


def _chart(chart: Chart | Blank) -> Iterator[str]:
    yield ""
    if isinstance(chart, Blank):
        yield f"{escape_line(chart.title)}: unknown, because {escape_line(chart.why)}."
        return
    if chart.caption:
        yield escape_line(chart.caption)
    yield from _grid(chart.table)


def _grid(grid: Grid) -> Iterator[str]:
    yield ""
    if grid.title:
        yield f"**{escape_line(grid.title)}**"
        yield ""
    heads = (grid.first, *grid.head)
    yield f"| {' | '.join(map(escape_line, heads))} |"
    yield (
        "|"
        + "|".join(
            "---" if not column or column in grid.texts else "---:" for column in range(len(heads))
        )
        + "|"
    )
    for row in grid.rows[:_MAX_ROWS]:
        yield f"| {' | '.join(map(escape_line, row))} |"
    if len(grid.rows) > _MAX_ROWS:
        yield ""
        yield f"{len(grid.rows) - _MAX_ROWS} more rows are in the HTML report."
    if grid.below:
        yield ""
        yield escape_line(grid.below)


def _fold(title: str, lines: Sequence[str]) -> Iterator[str]:
    yield ""
    yield open_fold(title)
    if not lines or lines[0]:
        yield ""
    yield from lines
    yield ""
    yield END_OF_FOLD


def small_text(text: str) -> str:
    """Text that is Markdown already, in small letters."""
    return str(element("sub", Markup(text)))


def open_fold(title: str) -> str:
    """What begins a part that is folded away under ``title``; ``END_OF_FOLD`` ends it."""
    return "".join(
        ("<details>", element("summary", Markup(_escape_links(str(escape(printable_line(title)))))))
    )


def escape_line(text: str) -> str:
    """One line of text that stands there as it is, but for what is between backticks, which stays code."""
    parts = _TYPED.split(printable_line(text))
    return "".join(
        _code(part) if at % 2 else _escape_links(_plain(part)) for at, part in enumerate(parts)
    )


def _plain(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text.replace("&", "&amp;"))


def _code(typed: str) -> str:
    """Between backticks nothing can be escaped: what could end the code there, or a table's cell, is set as HTML."""
    if _QUIET_CODE.fullmatch(typed):
        return f"`{typed}`"
    return str(element("code", Markup(_escape_links(_plain(typed)))))


def _escape_links(text: str) -> str:
    """Without mentions, references and links, which GitHub makes of plain words."""
    return (
        re.sub(r"[@#](?=\w)", r"\g<0><!-- -->", text)
        .replace("://", ":<!-- -->//")
        .replace("www.", "www<!-- -->.")
    )
