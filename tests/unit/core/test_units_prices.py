"""Prices as price lists write them."""

import pytest

from stash.core import units
from stash.core.errors import UnitError

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.parametrize(
    ("text", "dollars"),
    [("$3.06/h", 3.06), ("3.06 usd/h", 3.06), ("$3.06", 3.06), ("3.06 USD/hour", 3.06)],
)
def test_prices_are_dollars_per_hour(text, dollars):
    assert units.validate_price(text) == dollars


@pytest.mark.parametrize(
    "text", ["3.06 EUR/h", "£3/h", "$3/day", "$3 per month", "$3/min", "3,06", "", "free", "-3"]
)
def test_other_prices_are_refused(text):
    with pytest.raises(UnitError):
        units.validate_price(text)
