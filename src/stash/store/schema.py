"""The tables of a store: their columns in order, each with its type in SQL and what it means (``tables.csv``).

``stash query`` without SQL prints them. A column may be added at a table's end, and raises ``VERSION``, which makes
digests of an older one be made again. What is unknown is NULL.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

VERSION = 4
TableRow = Sequence[Any]
"""Values in the order of a table's columns."""
TableRows = dict[str, list[TableRow]]
"""Rows by table."""


class TableColumn(NamedTuple):
    """One column of a table."""

    name: str
    kind: str
    """``VARCHAR``, ``DOUBLE``, ``BIGINT`` or ``BOOLEAN``."""
    meaning: str


def _read_tables() -> dict[str, tuple[TableColumn, ...]]:
    """Every table; the first column of each is the artefact's id."""
    id = TableColumn("id", "VARCHAR", "of the artefact, as `stash list` shows it")
    tables: dict[str, tuple[TableColumn, ...]] = {}
    with (Path(__file__).parent / "tables.csv").open(encoding="utf-8", newline="") as file:
        for table, *column in list(csv.reader(file))[1:]:
            tables[table] = (*tables.get(table, (id,)), TableColumn(*column))
    return tables


TABLES = _read_tables()
DERIVED = tuple(name for name in TABLES if name != "blocks")
"""What a digest holds; blocks are read from the artefacts, whose bulk they are."""


def fits(table: str, row: Any) -> bool:
    """Whether ``row``, read from a file, is one of ``table``: as many values, each NULL or of its column's type."""
    columns = TABLES[table]
    return (
        isinstance(row, list)
        and len(row) == len(columns)
        and all(
            value is None or _FITS[column.kind](value)
            for column, value in zip(columns, row, strict=True)
        )
    )


_FITS: dict[str, Callable[[Any], bool]] = {
    "VARCHAR": lambda value: isinstance(value, str),
    "DOUBLE": lambda value: type(value) in (int, float) and math.isfinite(value),
    "BIGINT": lambda value: type(value) is int and -(2**63) <= value < 2**63,
    "BOOLEAN": lambda value: isinstance(value, bool),
}
