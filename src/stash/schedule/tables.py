"""Tables that people write, ``jobs.csv`` and ``matrix.csv``: lines by their columns, each mistake with its place."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stash.core.errors import UnitError, UserError
from stash.core.printable import shorten_text
from stash.core.units import find_nearest, parse_seconds
from stash.core.user_files import table_rows, text_of

DESCRIBED = "docs/how-to/schedule.md describes such files"
_MAX_BYTES = 64 * 2**20


@dataclass(frozen=True)
class TableLine:
    """One line, its cells by column."""

    path: Path
    number: int
    cells: Mapping[str, str]

    def mistake(self, column: str, why: str) -> UserError:
        return UserError(f"{self.path}:{self.number}: {column}: {why}")

    def text(self, column: str) -> str:
        """Empty where there is none."""
        return self.cells.get(column, "")

    def number_of(self, column: str, least: float = 0.0, above: bool = False) -> float | None:
        text = self.text(column)
        if not text:
            return None
        try:
            value = float(text.replace("_", ""))
        except ValueError:
            raise self.mistake(column, f"{shorten_text(text, 40)!r} is no number") from None
        if not math.isfinite(value) or value < least or (above and value <= least):
            raise self.mistake(
                column, f"{text} must be {'above' if above else 'at least'} {least:g}"
            )
        return value

    def gpus(self) -> int:
        found = self.number_of("gpus", 1)
        if found is None or found != int(found):
            raise self.mistake(
                "gpus", f"{self.text('gpus') or 'nothing'} is no whole number of GPUs"
            )
        return int(found)

    def time_of(self, column: str) -> float | None:
        text = self.text(column)
        if not text:
            return None
        if text.startswith("-"):
            raise self.mistake(column, f"{text} is negative; times count from the first submission")
        try:
            return parse_seconds(text, named="s")
        except UnitError as error:
            raise self.mistake(column, f"{error}; write seconds, or a time like 3h") from None


def read_table(path: Path, what: str, needed: Sequence[str], like: str) -> list[TableLine]:
    """The lines that say something; raises UserError where one of the ``needed`` columns is missing.

    ``like`` is the end of a sentence on what the first line is.
    """
    rows = table_rows(text_of(path, what, DESCRIBED, _MAX_BYTES), path, DESCRIBED)
    head = [cell.strip() for cell in rows[0][1]] if rows else []
    for name in needed:
        if name not in head:
            alike = find_nearest(name, head, 1)
            hint = f" ({alike[0]} is another)" if alike else ""
            raise UserError(f"{path} has no column {name}{hint}; its first line is {like}")
    cells = ((number, [cell.strip() for cell in row]) for number, row in rows[1:])
    return [
        TableLine(path, number, dict(zip(head, row, strict=False)))
        for number, row in cells
        if any(row)
    ]
