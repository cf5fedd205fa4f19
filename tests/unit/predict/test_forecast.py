"""A forecast: stalls that add up, ends in a breakdown, and says what is unknown and what is far away."""

import pytest

from stash.advice.verdict import verdict
from stash.analysis.breakdown import Missing
from stash.core.errors import StashError
from stash.predict.cluster import Target
from stash.predict.draws import Draws
from stash.predict.forecast import PredictedStall, forecast

DRAWS = Draws()
TARGET = Target(name="two of them", nodes=2, devices=2, backend="gloo")


def part(name, mean, spread=0.001, **fields):
    drawn = mean + spread * DRAWS.normals(name)
    return PredictedStall(name, drawn, **{"origin": "measured", **fields})  # type: ignore[arg-type]


def test_stalls_add_up_and_stand_in_ladder_order():
    found = forecast(
        TARGET, [part("network", 0.05), part("compute", 0.1), part("contention", 0.01)]
    )
    assert [stall.name for stall in found.breakdown.stalls] == ["compute", "contention", "network"]
    assert sum(stall.seconds for stall in found.breakdown.stalls) == pytest.approx(
        found.breakdown.step_seconds
    )
    assert found.breakdown.step_seconds == pytest.approx(0.16)


def test_errors_that_go_together_are_not_taken_as_independent():
    both = DRAWS.normals("shared") * 0.001
    parts = [
        PredictedStall("compute", 0.1 + both, "measured"),
        PredictedStall("network", 0.05 - both, "measured"),
    ]
    step = forecast(TARGET, parts).step
    assert step.half_width == pytest.approx(0.0, abs=1e-9)


def test_while_a_possible_stall_is_unknown_so_is_the_step():
    gone = Missing(name="network", why="the network is unknown", possible=True)
    found = forecast(TARGET, [part("compute", 0.1)], [gone], samples=32)
    assert found.unknown == (gone,)
    assert found.step is None


def test_a_stall_that_cannot_be_or_is_contained_leaves_nothing_unknown():
    missing = (
        Missing(name="fetch", why="no loader"),
        Missing(name="interconnect", why="…", possible=True, contained_in="network"),
    )
    found = forecast(TARGET, [part("compute", 0.1), part("network", 0.1)], missing, samples=32)
    assert found.unknown == ()
    assert found.step == found.breakdown.step
    assert found.breakdown.samples_per_second == pytest.approx(160)


def test_what_is_not_known_to_spread_has_no_ends():
    found = forecast(TARGET, [part("compute", 0.1), part("network", 0.05, spread_known=False)])
    assert found.breakdown.stalls[1].low is None
    assert found.breakdown.step.low is None
    assert found.breakdown.stalls[0].low is not None


@pytest.mark.parametrize("names", [(), ("network",), ("compute", "network", "network")])
def test_no_forecast_is_made_of_parts_that_are_no_breakdown(names):
    with pytest.raises(StashError, match="has no breakdown"):
        forecast(TARGET, [part(name, 0.1) for name in names])


def test_advice_reads_a_forecast_as_it_reads_a_profile(two_nodes):
    found = forecast(TARGET, [part("compute", 0.1), part("network", 0.2)], repetitions=5)
    assert verdict(found.breakdown, two_nodes).text  # type: ignore[arg-type]


@pytest.fixture
def two_nodes():
    from profile_builder import build

    return build({"solo": [0.1] * 3, "crowd": [0.1] * 3, "cluster": [0.3] * 3}, ranks=2, nodes=2)
