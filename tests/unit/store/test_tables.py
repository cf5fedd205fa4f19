"""The tables are documented as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stash.core.ladder import STALLS
from stash.store.schema import STALL_NAMES, TABLES, fits

pytestmark = pytest.mark.usefixtures("home")

PAGE = (Path(__file__).parents[3] / "docs" / "format.md").read_text()
WORDS = {"VARCHAR": "text", "DOUBLE": "number", "BIGINT": "integer", "BOOLEAN": "true or false"}


@pytest.mark.parametrize("table", TABLES)
def test_every_column_is_described_with_its_type(table: str) -> None:
    section = PAGE.partition(f"### The table `{table}`")[2].partition("\n#")[0]
    described = re.findall(r"^\| `(\w+)` \| ([\w ]+) \| (.+) \|$", section, re.MULTILINE)
    assert described == [(column.name, WORDS[column.kind], column.meaning) for column in TABLES[table]]


def test_every_stall_has_a_column() -> None:
    assert STALL_NAMES == STALLS
    assert {f"{name}_pct" for name in STALLS} <= {column.name for column in TABLES["profiles"]}


def test_a_row_fits_its_table_or_not() -> None:
    good = ["id", 0, 1, 0, "cpu", None]
    assert fits("ranks", good)
    for wrong in (good[:-1], [*good, 1], tuple(good), None, ["id", "0", *good[2:]], ["id", 2**63, *good[2:]]):
        assert not fits("ranks", wrong)
    assert not fits("ranks", ["id", True, *good[2:]])
    assert not fits("stalls", ["id", "prep", float("nan"), None, None, None, None, None])
