"""Queues fitted to fleets: a network that is known is found again, published runs are predicted unseen."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from fleet_pools import ROOT

from stash.core.errors import UserError
from stash.spot.fleet_records import FittedQueue, FleetModel, FleetRun
from stash.spot.model.fitting import fit, predict, queue_speeds
from stash.spot.spot_files import workers_of

TRUE = FittedQueue(server_seconds=0.02, randomness=0.6, unsplit=0.25)
SINGLES = {("v100", 1): 0.06, ("k80", 1): 0.2}


def run(servers: int, speed: float = 1.0, **workers: int) -> FleetRun:
    return FleetRun(servers=servers, workers=workers, updates_per_second=speed)


def true_runs() -> list[FleetRun]:
    fleets = [run(1, v100=1), run(1, k80=1), run(1, v100=2, k80=1), run(1, v100=4), run(1, k80=6), run(2, v100=6)]
    speeds = queue_speeds(TRUE, SINGLES, fleets)
    return [each.model_copy(update={"updates_per_second": speed}) for each, speed in zip(fleets, speeds, strict=True)]


@pytest.fixture(scope="module")
def model() -> FleetModel:
    return fit(true_runs(), "runs.csv")


def test_a_known_network_is_found_again(model: FleetModel) -> None:
    assert model.queue.server_seconds == pytest.approx(TRUE.server_seconds, rel=0.1)
    asked = [run(1, v100=3, k80=3), run(2, v100=4, k80=4), run(1, v100=6)]
    predicted = [predict(model, each.servers, each.workers).updates_per_second for each in asked]
    assert predicted == pytest.approx(queue_speeds(TRUE, SINGLES, asked), rel=0.03)


def test_an_interval_holds_the_value_and_extrapolation_is_said(model: FleetModel) -> None:
    inside = predict(model, 1, {"v100": 3})
    assert inside.beyond == ()
    assert inside.low < inside.updates_per_second < inside.high
    assert "9 workers are more than the 6" in " ".join(predict(model, 1, {"k80": 9}).beyond)
    assert "no run had 3 servers, only 1 and 2" in " ".join(predict(model, 3, {"k80": 1}).beyond)


def test_runs_that_determine_nothing_are_refused() -> None:
    with pytest.raises(UserError, match="every run has one worker alone"):
        fit([run(1, 5, k80=1)], "")
    with pytest.raises(UserError, match=r"no run has a single v100; add one .* 1,v100=1"):
        fit([run(1, 5, k80=1), run(1, 9, v100=2)], "")


def test_one_fleet_cannot_tell_how_wrong_it_is() -> None:
    found = predict(fit([run(1, 5, k80=1), run(1, 9.5, k80=2)], ""), 1, {"k80": 2})
    assert found.low is None
    assert "how wrong the model is, is unknown" in " ".join(found.beyond)


def test_published_fleets_are_predicted_from_three_others() -> None:
    """CM-DARE's ResNet-32: fitted to single workers and 2, 4 and 8 P100, asked about 3 to 7 P100 and 2 to 8 K80."""
    with (ROOT / "bench/spot/data/cmdare_speeds.csv").open() as file:
        runs = [
            run(1, float(row["updates_per_second"]), **workers_of(row["workers"], "", "+"))
            for row in csv.DictReader(file)
            if (row["model"], row["servers"]) == ("resnet32", "1")
        ]
    known = [each for each in runs if each.size == 1 or each.workers.get("p100") in (2, 4, 8)]
    unseen = [each for each in runs if each not in known]
    model = fit(known, "")
    errors = [
        abs(predict(model, 1, each.workers).updates_per_second / each.updates_per_second - 1) for each in unseen
    ]
    assert len(unseen) == 11
    assert np.median(errors) < 0.07
    assert np.quantile(errors, 0.9) < 0.12


@pytest.mark.slow
def test_with_more_servers_than_any_fleet_was_timed_with_the_low_end_has_the_first_do_everything() -> None:
    """CM-DARE's Shake-Shake gained next to nothing from a second server, which no run with one server can tell."""
    with (ROOT / "bench/spot/data/cmdare_speeds.csv").open() as file:
        runs = [
            run(int(row["servers"]), float(row["updates_per_second"]), **workers_of(row["workers"], "", "+"))
            for row in csv.DictReader(file)
            if row["model"] == "shake-shake-big"
        ]
    model = fit([each for each in runs if each.size == 1 or (each.servers == 1 and each.size in (2, 4, 8))], "")
    unseen = [each for each in runs if each.servers == 2 and each.size > 1]
    found = [predict(model, 2, each.workers) for each in unseen]
    assert all("as if all work stayed with the first" in " ".join(each.beyond) for each in found)
    inside = [
        each.low < measured.updates_per_second < each.high for each, measured in zip(found, unseen, strict=True)
    ]
    assert sum(inside) >= 6  # three of seven without
    both = fit([each for each in runs if each.size < 8], "")
    assert "stayed with the first" not in " ".join(predict(both, 2, {"p100": 8}).beyond)
