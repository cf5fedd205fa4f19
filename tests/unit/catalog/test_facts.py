"""The age of a price: a range where only its month or year is known, and unknown where it is undated."""

from datetime import date

import pytest

from stash.catalog.facts import price_age

pytestmark = pytest.mark.usefixtures("home")

TODAY = date(2026, 11, 20)


@pytest.mark.parametrize(
    ("as_of", "least", "most", "old"),
    [
        ("2026-11-20", 0, 0, False),
        ("2026-08-22", 90, 90, False),
        ("2026-08-21", 91, 91, True),
        ("2026-11", 0, 19, False),
        ("2026-10", 20, 50, False),
        ("2026", 0, 323, True),
        ("2024", 689, 1054, True),
    ],
)
def test_the_age_is_as_exact_as_the_date(as_of, least, most, old):
    found = price_age(as_of, TODAY)
    assert (found.least, found.most, found.is_old) == (least, most, old)
    assert found.days == (least if least == most else None)


def test_an_undated_price_has_no_age():
    assert price_age(None, TODAY) is None
