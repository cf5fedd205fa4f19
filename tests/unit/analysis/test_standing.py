"""How far a measurement has come: the widest interval, and when it may end."""

from __future__ import annotations

import math

import pytest
from profile_builder import build, own_launches

from stash.analysis.stability import MeasurementProgress, standing


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
