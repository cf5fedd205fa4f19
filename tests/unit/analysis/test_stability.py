"""Whether a profile deserves trust, how far it has come, and what more of it would bring."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from breakdowns import CALM
from profile_builder import build, own_launches

from stash.analysis.attribution import attribute
from stash.analysis.stability import MeasurementProgress, budget_for, more_time, spent_seconds, standing
from stash.core.records.profile import Profile
from stash.core.rounds import increments


def _noisy(rounds: int, scale: float, seed: int = 1) -> dict[str, list[float]]:
    rng = np.random.default_rng(seed)
    return {name: (values[0] * (1 + scale * rng.standard_normal(rounds))).tolist() for name, values in CALM.items()}


def warnings_of(profile: Profile) -> str:
    return " ".join(attribute(profile).stability.warnings)


def test_a_calm_profile_is_stable():
    stability = attribute(build(_noisy(8, 0.003))).stability
    assert stability.ok
    assert stability.warnings == ()


def test_steal_time_is_a_warning_with_advice():
    text = warnings_of(build(_noisy(8, 0.003), host={"steal_fraction": 0.12}))
    assert "12%" in text
    assert "dedicated machine" in text


def test_wide_intervals_are_compared_with_the_precision_asked_for():
    assert "not the ±2.0% asked for" in warnings_of(build(_noisy(6, 0.05)))


def test_drift_is_a_warning():
    growth = np.linspace(1, 1.3, 10)
    times = {name: (values[0] * growth).tolist() for name, values in CALM.items()}
    assert "slower from the first round to the last" in warnings_of(build(times))


def test_two_speeds_are_a_warning():
    times = {
        name: [values[0] * (1.0 if i % 3 else 1.3) for i in range(9)]
        for name, values in CALM.items()
        if name != "solo"
    }
    assert "The step under crowd takes either 104 ms or 135 ms" in warnings_of(build(times))


@pytest.mark.parametrize(
    ("rung", "device", "what"),
    [("solo", "cpu", "compute"), ("solo", "cuda", "the transfer stall"), ("crowd", "cpu", "the contention stall")],
)
def test_what_changed_is_what_the_rung_holds(rung: str, device: str, what: str):
    """On CPUs nothing is copied to a device: the lowest rung is all of compute."""
    lower = {"resident": [0.1] * 9} if device == "cuda" else {}
    times = lower | {name: [values[0]] * 9 for name, values in CALM.items()}
    times[rung] = [times[rung][0] * (1.0 if i % 3 else 1.3) for i in range(9)]
    assert f"and the mean is neither: {what} changed;" in warnings_of(build(times, device=device))


def test_replayed_batches_that_take_longer_than_fresh_ones_are_no_silent_stall():
    lengths = _noisy(8, 0.003) | {"warm": [0.115] * 8, "cold": [0.120] * 8}
    text = warnings_of(build(lengths))
    assert "Steps on replayed batches take 25." in text
    assert "profile with batches of one size" in text
    assert "replayed" not in warnings_of(build(_noisy(8, 0.003)))


def test_of_separate_launches_it_is_sets_that_are_too_few():
    assert "Only 2 of the 3 sets of launches" in warnings_of(own_launches(sets=2))


def test_two_rounds_are_too_few():
    assert "Only 2 rounds" in warnings_of(build(_noisy(2, 0.001)))


PROFILE = build({name: values * 4 for name, values in CALM.items()})
"""12 rounds in 41.8 s of 120."""


def test_half_the_width_takes_four_times_the_budget():
    assert budget_for(PROFILE, 12, 0.02, 0.01) == pytest.approx(
        4 * 41.8, rel=0.15
    )  # Student's quantile falls meanwhile
    assert budget_for(PROFILE, 12, 0.02, 0.02) == 50.0  # 41.8 rounded up


def test_what_it_asks_for_is_enough_where_the_machine_stays_as_it_is():
    rng = np.random.default_rng(7)
    few, asked = [], []
    for _ in range(200):
        half = increments(rng.normal(0.1, 0.01, (6, 1)) * [0.0, 1.0])[0].half_width
        few.append(half)
        rounds = round(budget_for(PROFILE, 6, half, 0.004) / 41.8 * 6)
        asked.append(increments(rng.normal(0.1, 0.01, (rounds, 1)) * [0.0, 1.0])[0].half_width)
    assert np.median(few) > 0.008
    assert np.median(asked) == pytest.approx(0.004, rel=0.25)


def test_after_one_round_it_is_what_five_take():
    one = build({name: values[:1] for name, values in CALM.items()})
    assert budget_for(one, 1, None, 0.0) == 210.0
    assert budget_for(build({name: values[:2] for name, values in CALM.items()}), 2, 0.02, 0.019) == 110.0


def test_beyond_an_hour_it_is_the_machine_that_has_to_change():
    assert budget_for(PROFILE, 12, 0.1, 0.001) is None
    assert more_time(None).startswith("not even --budget 3600 would be enough as it is: stop other work")
    assert more_time(270.0) == "profile again with --budget 270"


def test_a_round_longer_than_the_budget_costs_what_it_took():
    blocks = tuple(replace(b, started=100.0 * b.round) for b in PROFILE.blocks)
    assert spent_seconds(PROFILE) == 41.8
    assert spent_seconds(PROFILE.model_copy(update={"blocks": blocks})) == pytest.approx(1101.76)


def test_before_the_second_round_no_interval_is_known() -> None:
    assert standing(build({"solo": [0.1], "crowd": [0.2]})) == MeasurementProgress(1)
    assert standing(build({"solo": [], "crowd": []})).seconds_left(5.0, 60.0) == 55.0


def test_the_widest_interval_is_a_share_of_the_step() -> None:
    # Differences of 0.1, 0.12 and 0.08 s: a spread of 0.02 s, and Student's quantile for three rounds is 4.303. Slow
    # noise that three rounds cannot tell apart widens that a little.
    found = standing(build({"solo": [0.1, 0.1, 0.1], "crowd": [0.2, 0.22, 0.18]}))
    assert found.rounds == 3
    assert found.widest == pytest.approx(4.303 * 0.02 / math.sqrt(3) / 0.2, rel=0.1)


def test_what_is_precise_already_ends_at_the_third_round() -> None:
    even = standing(build({"solo": [0.1, 0.1], "crowd": [0.2, 0.2]}))
    assert (even.widest, even.rounds_needed) == (0.0, 3)
    assert even.seconds_left(8.0, 60.0) == 4.0  # one more round of four seconds
    assert standing(build({"solo": [0.1] * 3, "crowd": [0.2] * 3})).seconds_left(8.0, 60.0) == 0.0


def test_the_budget_ends_what_would_take_longer() -> None:
    assert MeasurementProgress(4, 0.1, 400).seconds_left(20.0, 60.0) == 40.0
    assert MeasurementProgress(4, 0.1, 6).seconds_left(20.0, 60.0) == 10.0
    assert MeasurementProgress(4, 0.1, None).seconds_left(20.0, math.inf) == math.inf
    assert MeasurementProgress(4, 0.1, 400).seconds_left(61.0, 60.0) == -1.0


def test_a_disturbed_round_does_not_undo_the_others() -> None:
    disturbed = {"solo": [0.1] * 19 + [0.13], "crowd": [0.2, 0.201] * 10}
    found = standing(build(disturbed))
    assert found.rounds == 20
    assert found.widest is not None
    assert found.widest < 0.02


def test_sets_of_launches_are_what_counts_where_rungs_have_launches_of_their_own() -> None:
    found = standing(own_launches(sets=3))
    assert found.rounds == 9
    assert found.widest == pytest.approx(4.303 * 0.01 / math.sqrt(3) / 0.22, rel=0.15)
    assert found.rounds_needed % 3 == 0
