"""The tables of a store: every column has a meaning, and rows fit them or are refused."""

import pytest

from stash.store.schema import fits

pytestmark = pytest.mark.usefixtures("home")


def test_a_row_fits_its_table_or_not():
    good = ["id", 0, 1, 0, "cpu", None]
    assert fits("ranks", good)
    for wrong in (
        good[:-1],
        [*good, 1],
        tuple(good),
        None,
        ["id", "0", *good[2:]],
        ["id", 2**63, *good[2:]],
    ):
        assert not fits("ranks", wrong)
    assert not fits("ranks", ["id", True, *good[2:]])
    assert not fits("stalls", ["id", "prep", float("nan"), None, None, None, None, None])
