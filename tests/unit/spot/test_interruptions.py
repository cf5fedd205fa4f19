"""How often spot machines are revoked: what is read, and one sentence for whatever is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from stash.core.errors import UnitError, UserError
from stash.core.units import parse_interruptions
from stash.spot.spot_files import read_pool

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file"


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
def test_interruptions_are_revocations_an_hour(text: str, low: float, high: float) -> None:
    assert parse_interruptions(text) == (pytest.approx(low, rel=1e-4), pytest.approx(high, rel=1e-4))


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
def test_interruptions_that_cannot_be_read_say_how_to_write_them(text: str, sentence: str) -> None:
    with pytest.raises(UnitError, match=sentence):
        parse_interruptions(text)


POOL = """as_of: 2026-11-22
source: us
exchange_bytes: 1MB
worker_bytes_per_second: 100MB/s
pcie_bytes_per_second: 10GB/s
server: {bytes_per_second: 1GB/s}
loss: {gamma1: 1, gamma2: -0.2, gamma3: 2507.6, gamma5: 0.5}
types:
  - {name: t4, batch: 8, samples_per_second: 8, quota: 1, dollars_per_hour: 1, interruptions: BAND}
"""


def test_a_pool_may_say_how_often_its_types_are_revoked(file: Path) -> None:
    file.write_text(POOL.replace("BAND", "5-10%/month"))
    band = read_pool(file).types[0].interruptions
    assert band.high == pytest.approx(0.10536 / 730, rel=1e-4)
    file.write_text(POOL.replace("BAND", "rarely"))
    with pytest.raises(UserError, match=r":9: types\[0\].interruptions: cannot read the interruptions 'rarely'"):
        read_pool(file)
