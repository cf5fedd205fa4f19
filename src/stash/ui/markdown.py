"""A page as GitHub's Markdown, for a pull request or a ticket: verdict, bar, tables; the chapters in folds.

Charts are left out, their tables are not, unless a chapter has the same one. Whatever comes from an artefact is
escaped, so that a host's name makes no link, mentions no user and opens no tag.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from markupsafe import Markup, escape

from stash.core.printable import printable_line
from stash.ui.charts.chart import Blank, Grid
from stash.ui.elements import element
from stash.ui.page import Chapter, Page, Row, part_lengths

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
    return _join_blocks(_page(page, 2)) + "\n"


def _join_blocks(blocks: Iterable[str]) -> str:
    """Paragraphs, tables and folds, a blank line between each two."""
    return "\n\n".join(blocks)


def _page(page: Page, level: int) -> Iterator[str]:
    yield f"{'#' * level} {escape_line(page.title)}"
    if page.subtitle:
        yield " · ".join(map(escape_line, page.subtitle))
    for sentence in page.verdict:
        yield f"**{escape_line(sentence)}**"
    if page.bar:
        title = f"{escape_line(page.bar_title)}: " if page.bar_title else ""
        yield title + "".join(_square(row) * count for row, count in part_lengths(page.bar, _WIDTH))
    if page.rows:
        lines = ["| | time | 95% | share |", "|---|---:|---:|---:|"]
        for row in page.rows:
            name = escape_line(row.name)
            if row.why is not None:
                lines.append(f"| {name} | unknown | | {escape_line(row.why)} |")
                continue
            name = f"{SQUARES.get(row.name, '')} {name}".strip()
            interval = escape_line(row.interval) + (" (within noise)" if row.within_noise else "")
            lines.append(
                f"| {name} | {escape_line(row.time)} | {interval} | {escape_line(row.share)} |"
            )
        yield "\n".join(lines)
        if page.below_rows:
            yield small_text(escape_line(page.below_rows))
    elif page.bar:
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
        blocks = [] if chapter.folded else list(_chapter(chapter, tables))
        if blocks:
            yield _fold(chapter.title, blocks)
    if page.again:
        command = printable_line(page.again).replace("```", "'''")
        yield _fold("Measure it again", [f"```bash\n{command}\n```"])
    for part in page.parts:
        yield _fold(f"{part.source}: {part.title}", _page(part, level + 1))
    if page.footer:
        yield small_text(escape_line(page.footer))
    if page.made:
        yield small_text(
            f"{escape_line(page.source)}, measured {escape_line(page.made)}; ± are 95% intervals"
        )


def _square(row: Row) -> str:
    return SQUARES.get(row.series or row.name, OTHER_SQUARE)


def _bullet_lines(title: str, sentences: Sequence[str], bullet: str) -> Iterator[str]:
    if sentences:
        if title:
            yield f"**{title}**"
        yield "\n".join(f"{bullet} {escape_line(sentence)}" for sentence in sentences)


def _chapter(chapter: Chapter, tables: Collection[tuple[tuple[str, ...], ...]]) -> Iterator[str]:
    blocks: list[str] = [escape_line(chapter.text)] if chapter.text else []
    for chart in chapter.charts:
        if isinstance(chart, Blank):
            blocks.append(f"{escape_line(chart.title)}: unknown, because {escape_line(chart.why)}.")
        elif chart.table.rows not in tables:
            blocks += [escape_line(chart.caption)] if chart.caption else []
            blocks += _grid(chart.table)
    yield from blocks
    title = "Findings" if blocks or chapter.facts or chapter.grids else ""
    yield from _bullet_lines(title, chapter.points, "-")
    if chapter.facts:
        rows = (f"| {escape_line(label)} | {escape_line(text)} |" for label, text in chapter.facts)
        yield "\n".join(("| | |", "|---|---|", *rows))
    for grid in chapter.grids:
        yield from _grid(grid)


def _grid(grid: Grid) -> Iterator[str]:
    if grid.title:
        yield f"**{escape_line(grid.title)}**"
    heads = (grid.first, *grid.head)
    sides = (
        "---" if not column or column in grid.texts else "---:" for column in range(len(heads))
    )
    rows = (f"| {' | '.join(map(escape_line, row))} |" for row in (heads, *grid.rows[:_MAX_ROWS]))
    yield "\n".join((next(rows), f"|{'|'.join(sides)}|", *rows))
    if len(grid.rows) > _MAX_ROWS:
        yield f"{len(grid.rows) - _MAX_ROWS} more rows are in the HTML report."
    if grid.below:
        yield escape_line(grid.below)


def _fold(title: str, blocks: Iterable[str]) -> str:
    return _join_blocks((open_fold(title), *blocks, END_OF_FOLD))


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
