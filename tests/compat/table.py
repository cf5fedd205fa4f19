"""The table of docs/compatibility.md, from rows that were measured. Measures nothing."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Sequence

from tests.compat.runs import Row

_HEAD = "| project | version | command | rungs | plain step | profiled step | | unknown, and why | trouble |"
_NOISE = 0.1


def markdown(rows: Sequence[Row]) -> str:
    """The whole table, with the day and the machine above it."""
    day, python = datetime.date.today().isoformat(), platform.python_version()
    rule = "|" + "---|" * (_HEAD.count("|") - 1)
    return "\n".join([f"As of {day}, Python {python}.", "", _HEAD, rule, *map(line, rows)])


def line(row: Row) -> str:
    """One row."""
    unknown = "; ".join(f"{name}: {why}" for name, why in row.unknown.items()) or "–"
    plain = " / ".join(_ms(seconds) for seconds in row.plain) or "–"
    profiled = _ms(row.profiled) if row.profiled is not None else "–"
    trouble = "; ".join(row.trouble) or "–"
    cells = (
        row.project,
        row.version,
        f"`{row.command}`",
        ", ".join(row.rungs) or "–",
        plain,
        profiled,
        _verdict(row),
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in (*cells, unknown, trouble)) + " |"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def _verdict(row: Row) -> str:
    """Whether the profiled step lies within the plain ones, give or take a tenth and the profile's own interval."""
    if not row.plain or row.profiled is None:
        return "–"
    slack = _NOISE * max(row.plain) + (row.half_width or 0.0)
    within = min(row.plain) - slack <= row.profiled <= max(row.plain) + slack
    return "same" if within else f"× {row.profiled / (sum(row.plain) / len(row.plain)):.2f}"
