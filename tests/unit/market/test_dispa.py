"""The study of 2020 to a hundredth, from its own records; and what each correction changes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench.dispa import POLICIES, DayGrid, StudyAssumptions, StudyRate, day_grid, ladder
from bench.dispa_logs import import_dispa
from bench.market import MODELS, REFERENCE, V100_DAYS, market, study_rates
from stash.core.errors import UserError
from stash.market.market_trace import stamp
from tests.support.small_markets import START, offer, trace

GOLDEN = {
    "gpu-type": (1.32, 1.00, 1.00, 1.01, 1.00, 1.00),
    "packed": (1.71, 1.08, 1.08, 1.31, 1.08, 1.11),
    "multi-cloud": (3.10, 1.54, 1.70, 2.38, 1.49, 2.36),
    "daily": (3.53, 1.64, 1.81, 2.76, 1.53, 3.21),
}


@pytest.fixture(scope="module")
def grid() -> DayGrid:
    return day_grid(market())


def test_the_ladder_is_the_study_s_own(grid: DayGrid) -> None:
    for number, model in enumerate(MODELS.values()):
        found = ladder(grid, study_rates(model), REFERENCE, V100_DAYS, StudyAssumptions())
        assert len(found.starts) == 30
        for policy, numbers in GOLDEN.items():
            assert found.reduction(policy) == pytest.approx(numbers[number], abs=0.01), (model, policy)


def test_six_of_the_thirty_starts_precede_azure_s_log(grid: DayGrid) -> None:
    found = ladder(grid, study_rates("A3C"), REFERENCE, V100_DAYS, StudyAssumptions(uncovered_starts=False))
    assert len(found.starts) == 24


def test_an_instance_that_is_paid_whole_is_not_cheaper_for_having_many_gpus() -> None:
    one, eight = offer("p3.2xlarge@us-east-1a"), offer("p3.16xlarge@us-east-1a")
    days = [(day * 86_400 - START % 86_400 + 86_400, price) for day, price in enumerate([1.0] * 45)]
    pieces = {one: [(at, price, None) for at, price in days], eight: [(at, 6.4, None) for at, _ in days]}
    found = day_grid(trace(pieces, 60 * 86_400))
    rates = {"p3.2xlarge": StudyRate(1, 1.0), "p3.16xlarge": StudyRate(8, 1.0, 7.2)}
    study = ladder(found, rates, "p3.2xlarge", 2.0, StudyAssumptions())
    assert study.reduction("packed") == pytest.approx(1.25)  # an eighth of 6.4 dollars
    assert study.dollars[0, 0] == pytest.approx(48.0)
    whole = ladder(found, rates, "p3.2xlarge", 2.0, StudyAssumptions(share_billed=False))
    assert whole.reduction("packed") == 1.0
    measured = ladder(found, rates, "p3.2xlarge", 2.0, StudyAssumptions(share_billed=False, one_gpu=False))
    assert measured.reduction("packed") == pytest.approx(7.2 / 6.4)
    assert POLICIES[0] == "stay"


def test_the_study_s_logs_have_prices_and_pings(tmp_path: Path) -> None:
    costs, azure, pings = tmp_path / "aws/cost/us-east-1", tmp_path / "azure/cost", tmp_path / "aws/availability"
    for folder in (costs, azure, pings):
        folder.mkdir(parents=True)
    entry = {"AvailabilityZone": "us-east-1b", "InstanceType": "p3.2xlarge", "ProductDescription": "Linux/UNIX"}
    history = [{**entry, "SpotPrice": "1.14", "Timestamp": f"2020-03-1{day}T09:00:00.000Z"} for day in (5, 6)]
    (costs / "p3.json").write_text(json.dumps({"SpotPriceHistory": history}))
    (azure / "us_east.csv").write_text("Date,NC6,NC12\n3/15/2020,$0.12,\n3/16/2020,$0.13,$0.25\n")
    (pings / "a.out").write_text("\n".join([
        "[2020-03-15T10:00:00.000Z] Created instance i-1 with 1 GPU(s) of type v100 in zone us-east-1b",
        "[2020-03-15T10:10:00.000Z] Instance i-1 running in zone us-east-1b",
        "[2020-03-15T10:20:00.000Z] Instance i-1 not running in zone us-east-1b",
        "[2020-03-15T10:30:00.000Z] Instance with 1 GPU(s) of type v100 creation failed",
        "[2020-03-15T10:40:00.000Z] Created instance i-2 with 1 GPU(s) of type v100 in zone us-east-1b",
    ]))  # fmt: skip
    found = import_dispa(tmp_path).trace
    names = ["p3.2xlarge@us-east-1b", "Standard_NC12@eastus", "Standard_NC6@eastus"]
    assert [each.name for each in found.offers] == names
    there = {
        stamp(at)[11:16]: count for at, count in zip(found.at, found.available, strict=True) if not np.isnan(count)
    }
    assert there == {"10:00": 1, "10:20": 0, "10:40": 1}
    with pytest.raises(UserError, match="--regions mars: the logs have us-east-1"):
        import_dispa(tmp_path, ("mars",))
