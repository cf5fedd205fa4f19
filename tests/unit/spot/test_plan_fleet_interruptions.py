"""How often spot machines are revoked: what is read, and one sentence for whatever is wrong."""

import pytest

from stash.core.errors import UnitError
from stash.core.units import parse_interruptions

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("10%/month", 0.10536 / 730, 0.10536 / 730),  # −ln 0.9 = 0.10536
        ("5-10%/month", 0.05129 / 730, 0.10536 / 730),
        ("<5%/month", 0.0, 0.05129 / 730),
        (" 0.02 / h ", 0.02, 0.02),
        ("1.5/day", 0.0625, 0.0625),
    ],
)
def test_interruptions_are_revocations_an_hour(text, low, high):
    assert parse_interruptions(text) == (
        pytest.approx(low, rel=1e-4),
        pytest.approx(high, rel=1e-4),
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (">20%/month", "has no upper end"),
        ("often", "cannot read the interruptions 'often'"),
        ("10%", "cannot read the interruptions '10%'"),
        ("10-5%/month", "ends before it begins"),
        ("120%/month", "a share of machines is below 100%"),
        ("3/fortnight", "cannot read the interruptions"),
    ],
)
def test_interruptions_that_cannot_be_read_say_how_to_write_them(text, sentence):
    with pytest.raises(UnitError, match=sentence):
        parse_interruptions(text)
