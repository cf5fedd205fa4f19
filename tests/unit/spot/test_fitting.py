"""Queues fitted to fleets: a network that is known is found again, published runs are predicted unseen."""

import pytest

from stash.core.errors import UserError
from stash.spot.fleet_records import FittedQueue, FleetRun
from stash.spot.model.fitting import fit_fleets, predict_fleet, queue_speeds

TRUE = FittedQueue(server_seconds=0.02, randomness=0.6, unsplit=0.25)
SINGLES = {("v100", 1): 0.06, ("k80", 1): 0.2}


def run(servers, speed=1.0, **workers):
    return FleetRun(servers=servers, workers=workers, updates_per_second=speed)


def true_runs():
    fleets = [
        run(1, v100=1),
        run(1, k80=1),
        run(1, v100=2, k80=1),
        run(1, v100=4),
        run(1, k80=6),
        run(2, v100=6),
    ]
    speeds = queue_speeds(TRUE, SINGLES, fleets)
    return [
        each.model_copy(update={"updates_per_second": speed})
        for each, speed in zip(fleets, speeds, strict=True)
    ]


@pytest.fixture(scope="module")
def model():
    return fit_fleets(true_runs(), "runs.csv")


def test_a_known_network_is_found_again(model):
    assert model.queue.server_seconds == pytest.approx(TRUE.server_seconds, rel=0.1)
    asked = [run(1, v100=3, k80=3), run(2, v100=4, k80=4), run(1, v100=6)]
    predicted = [
        predict_fleet(model, each.servers, each.workers).updates_per_second for each in asked
    ]
    assert predicted == pytest.approx(queue_speeds(TRUE, SINGLES, asked), rel=0.03)


def test_an_interval_holds_the_value_and_extrapolation_is_said(model):
    inside = predict_fleet(model, 1, {"v100": 3})
    assert inside.beyond == ()
    assert inside.low < inside.updates_per_second < inside.high
    assert "9 workers are more than the 6" in " ".join(predict_fleet(model, 1, {"k80": 9}).beyond)
    assert "no run had 3 servers, only 1 and 2" in " ".join(
        predict_fleet(model, 3, {"k80": 1}).beyond
    )


def test_runs_that_determine_nothing_are_refused():
    with pytest.raises(UserError, match="every run has one worker alone"):
        fit_fleets([run(1, 5, k80=1)], "")
    with pytest.raises(UserError, match=r"no run has a single v100; add one .* 1,v100=1"):
        fit_fleets([run(1, 5, k80=1), run(1, 9, v100=2)], "")


def test_one_fleet_cannot_tell_how_wrong_it_is():
    found = predict_fleet(fit_fleets([run(1, 5, k80=1), run(1, 9.5, k80=2)], ""), 1, {"k80": 2})
    assert found.low is None
    assert "how wrong the model is, is unknown" in " ".join(found.beyond)
