"""The tables of a store: every column has a meaning, and rows fit them or are refused."""

from __future__ import annotations

import pytest

from stash.analysis.breakdown import Paper
from stash.core.ladder import STALLS
from stash.store.schema import TABLES, fits

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.parametrize("table", TABLES)
def test_every_column_has_a_type_and_a_meaning(table: str) -> None:
    kinds = {"VARCHAR", "DOUBLE", "BIGINT", "BOOLEAN"}
    assert [column for column in TABLES[table] if column.kind not in kinds or not column.meaning] == []


def test_every_stall_has_a_column() -> None:
    assert {f"{name}_pct" for name in STALLS} <= {column.name for column in TABLES["profiles"]}


def test_the_papers_percentages_are_those_that_it_defines() -> None:
    columns = {column.name.removeprefix("paper_") for column in TABLES["profiles"] if "paper" in column.name}
    assert columns == set(Paper.model_fields)


def test_a_row_fits_its_table_or_not() -> None:
    good = ["id", 0, 1, 0, "cpu", None]
    assert fits("ranks", good)
    for wrong in (good[:-1], [*good, 1], tuple(good), None, ["id", "0", *good[2:]], ["id", 2**63, *good[2:]]):
        assert not fits("ranks", wrong)
    assert not fits("ranks", ["id", True, *good[2:]])
    assert not fits("stalls", ["id", "prep", float("nan"), None, None, None, None, None])
