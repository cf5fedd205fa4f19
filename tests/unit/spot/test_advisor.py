"""AWS's list of interruptions: bands of a region, those without an end, and files that are something else."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from stash.core.errors import UserError
from stash.core.units import MONTH_HOURS
from stash.spot.market_files import read_advisor

pytestmark = pytest.mark.usefixtures("home")

LISTED = {
    "ranges": [
        {"index": 0, "label": "<5%", "dots": 0, "max": 5},
        {"index": 1, "label": "5-10%", "dots": 1, "max": 11},
        {"index": 4, "label": ">20%", "dots": 4, "max": 100},
    ],
    "spot_advisor": {
        "us-east-1": {
            "Linux": {
                "g4dn.xlarge": {"s": 60, "r": 1},
                "p3.2xlarge": {"s": 70, "r": 4},
                "g5.xlarge": {"s": 5, "r": 0},
            },
            "Windows": {"g4dn.xlarge": {"s": 1, "r": 4}},
        }
    },
}


@pytest.fixture
def advisor(tmp_path: Path) -> Path:
    path = tmp_path / "spot-advisor-data.json"
    path.write_text(json.dumps(LISTED))
    return path


def test_bands_of_a_region_are_rates_an_hour_and_one_without_an_end_is_none(advisor: Path) -> None:
    found = read_advisor(advisor, "us-east-1")
    assert found["p3.2xlarge"] is None
    band, rarely = found["g4dn.xlarge"], found["g5.xlarge"]
    assert (band.low, band.high) == pytest.approx((-math.log(0.95) / MONTH_HOURS, -math.log(0.9) / MONTH_HOURS))
    assert rarely.low == 0


def test_another_region_or_another_file_is_one_sentence(advisor: Path) -> None:
    with pytest.raises(UserError, match="nothing of the region mars-1; get it with: curl"):
        read_advisor(advisor, "mars-1")
    for text in ("{}", "[1]", "{", json.dumps({**LISTED, "ranges": [{"index": 1, "label": "often"}]})):
        advisor.write_text(text)
        with pytest.raises(UserError, match="is not the file of AWS's Spot Instance Advisor"):
            read_advisor(advisor, "us-east-1")
    with pytest.raises(UserError, match="cannot read"):
        read_advisor(advisor.with_name("none.json"), "us-east-1")
