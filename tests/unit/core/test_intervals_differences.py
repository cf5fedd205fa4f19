"""What is said of two measurements of the same thing; simulated, since that is what an interval promises."""

import numpy as np
import pytest

from stash.core.intervals import Interval, pool_runs, subtract_runs

SPREAD = 0.01


def known(value, arm):
    return Interval(value=value, low=value - arm, high=value + arm)


def test_the_change_of_lopsided_intervals_is_lopsided():
    before = Interval(value=1.0, low=0.9, high=1.4)
    after = Interval(value=2.0, low=1.7, high=2.0)
    found = subtract_runs(before, after)
    assert found.value == 1.0
    assert found.low == pytest.approx(1.0 - np.hypot(0.3, 0.4))
    assert found.high == pytest.approx(1.0 + np.hypot(0.0, 0.1))


def test_what_is_unknown_on_a_side_is_unknown_of_the_change():
    assert subtract_runs(Interval(value=1.0), known(2.0, 0.1)).low is None
    assert pool_runs([known(1.0, 0.1), Interval(value=1.2)], SPREAD).low is None


def test_one_run_is_as_uncertain_as_its_noise_and_another_launch_together():
    quiet = pool_runs([known(1.0, 1e-9)], SPREAD)
    noisy = pool_runs([known(1.0, 0.2)], SPREAD)
    # Student's, of ten degrees of freedom
    assert quiet.half_width == pytest.approx(2.228 * SPREAD, rel=1e-3)
    assert 0.2 < noisy.half_width < 0.25


def test_runs_that_differ_widen_their_mean_and_runs_that_agree_narrow_it():
    agreeing = pool_runs([known(value, 1e-9) for value in (1.0, 1.0, 1.0, 1.0)], SPREAD)
    differing = pool_runs([known(value, 1e-9) for value in (0.8, 1.2, 0.8, 1.2)], SPREAD)
    assert agreeing.half_width < pool_runs([known(1.0, 1e-9)], SPREAD).half_width / 2
    assert differing.half_width > 5 * agreeing.half_width


@pytest.mark.parametrize("runs", [1, 2, 3, 6])
@pytest.mark.parametrize("launches", [0.3, 1.0])
def test_two_sides_of_one_job_are_called_different_seldom(runs, launches):
    # GIVEN launches that differ by the typical spread or less, and rounds whose noise each interval tells rightly
    rng = np.random.default_rng(runs)
    noise = 0.008
    called = 0
    tries = 1000
    for _ in range(tries):
        sides = (
            1
            + launches * SPREAD * rng.standard_normal((2, runs))
            + noise * rng.standard_normal((2, runs))
        )
        before, after = (
            pool_runs([known(value, 1.96 * noise) for value in side], SPREAD) for side in sides
        )
        called += not subtract_runs(before, after).within_noise
    # THEN hardly more than one pair in twenty is called slower or faster
    assert called / tries < 0.065
