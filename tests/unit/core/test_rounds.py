"""Paired statistics: hand-worked values, and honest coverage in simulation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from stash.core.intervals import Interval
from stash.core.rounds import (
    drift,
    estimate,
    increments,
    rounds_needed,
    spread,
    two_modes,
    warming_up,
)


def test_estimate_gives_the_mean_and_no_width_where_differences_do_not_vary():
    matrix = np.array([[1.0, 3.0], [2.0, 4.0], [3.0, 5.0]])
    # drift of 1 s a round cancels
    assert increments(matrix) == [Interval(value=2.0, low=2.0, high=2.0, repetitions=3)]
    first, second = estimate(matrix)
    assert (first.value, second.value) == (2.0, 2.0)
    # of a machine as slow as in the first round, or as in the last, all along
    assert second.low < 1.9


def test_a_stall_is_as_uncertain_as_the_pace_of_the_machine_that_multiplies_it():
    pace = np.array([1.0, 1.02, 1.04, 1.05, 1.05, 1.04, 1.02, 1.0, 0.98, 0.96, 0.95, 0.96])[:, None]
    _, small, large = estimate(np.array([1.0, 1.001, 2.001]) * pace)
    assert large.half_width > 0.03
    assert small.half_width == pytest.approx(large.half_width / 1000, rel=0.2)


def test_a_single_round_has_an_unknown_interval_not_a_narrow_one():
    (only,) = estimate(np.array([[1.5]]))
    assert only == Interval(value=1.5)
    assert only.half_width is None
    assert not only.within_noise


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_an_empty_matrix_is_refused(shape):
    with pytest.raises(ValueError, match="rounds x rungs"):
        estimate(np.zeros(shape))


def _coverage(draw, rounds, trials=600):
    noise = draw((trials, rounds))
    hits = 0
    for row in noise:
        (only,) = increments(np.column_stack([np.zeros(rounds), row]))
        hits += only.low <= 0.0 <= only.high
    return hits / trials


@pytest.mark.parametrize("rounds", [3, 6, 12])
def test_95_percent_intervals_cover_normal_noise_in_93_to_98_percent_of_trials(rounds):
    rng = np.random.default_rng(11)
    assert 0.93 <= _coverage(rng.standard_normal, rounds) <= 0.98


@given(
    arrays(
        np.float64,
        st.tuples(st.integers(1, 30), st.integers(1, 7)),
        elements=st.floats(1e-4, 10, allow_nan=False),
    )
)
@settings(max_examples=25, deadline=None)
def test_stalls_sum_to_the_step(matrix):
    estimates = estimate(matrix)
    assert sum(e.value for e in estimates) == pytest.approx(matrix[:, -1].mean(), rel=1e-9)
    for e in estimates:
        assert (e.low is None) == (len(matrix) == 1)
        if e.low is not None:
            assert e.low <= e.value + 1e-12
            assert e.high >= e.value - 1e-12


def test_a_rung_that_hangs_now_and_then_is_covered_as_soon_as_it_was_seen_to():
    rng = np.random.default_rng(8)
    held = []
    for _ in range(300):
        matrix = np.array([1.0, 1.1, 1.3]) * (1 + 0.01 * rng.standard_normal((16, 3)))
        hung = rng.random(16) < 0.05
        matrix[hung, 2] *= 1.3
        if hung.any():
            found = estimate(matrix)[2]
            held.append(found.low <= 0.2 + 0.05 * 0.39 <= found.high)
    assert np.mean(held) >= 0.9


def test_only_what_falls_at_the_beginning_and_then_stays_was_warming_up():
    assert warming_up(np.array([1.5, 1.3, 1.1, 1.0, 1.01, 1.0, 0.99, 1.0, 1.01]))
    # another job that ended
    assert not warming_up(np.array([1.5, 1.5, 1.5, 1.5, 1.0, 1.0, 1.0, 1.0, 1.0]))
    assert not warming_up(np.linspace(1.5, 1.0, 9))  # falls all along
    assert not warming_up(np.linspace(1.0, 1.5, 9))
    assert not warming_up(np.array([1.5, 1.2, 1.0]))


def test_drift_is_the_relative_change_from_first_round_to_last():
    assert drift(np.linspace(1.0, 1.2, 11)) == pytest.approx(0.2 / 1.1)
    assert drift(np.linspace(1.2, 1.0, 11)) == pytest.approx(-0.2 / 1.1)


def test_noise_is_not_called_drift():
    rng = np.random.default_rng(7)
    found = [drift(rng.normal(1, 0.02, 10)) is not None for _ in range(500)]
    assert np.mean(found) < 0.03
    assert drift(np.linspace(1, 2, 5)) is None  # five rounds show no trend


def test_two_modes_are_found_and_one_is_not_split():
    values = np.array([1.0, 1.01, 1.2, 1.0, 1.21, 1.2, 1.01, 1.21])
    assert two_modes(values) == (pytest.approx(1.005), pytest.approx(1.205))
    rng = np.random.default_rng(7)
    assert np.mean([two_modes(rng.normal(1, 0.1, 8)) is not None for _ in range(500)]) < 0.05
    assert two_modes(np.array([1.0] * 7 + [2.0])) is None  # one outlier is no mode


def test_spread_ignores_a_single_outlier():
    assert spread(np.array([1.0, 1.0, 1.0, 1.0, 9.0])) == 0.0
    assert spread(np.array([0.9, 1.0, 1.1])) == pytest.approx(0.14826)


def test_the_rounds_needed_are_those_whose_interval_is_as_narrow_as_wanted():
    # Half-widths of the same spread after 3 and after 20 rounds: Student's quantile over the root of their number.
    three = 4.3027 / math.sqrt(3)
    twenty = 2.0930 / math.sqrt(20)
    assert rounds_needed(three, twenty * 1.0001, 3) == 20
    assert rounds_needed(three, twenty * 0.9999, 3) == 21
    assert rounds_needed(twenty, twenty * 1.0001, 20) == 20


def test_rounds_that_draw_their_own_batches_are_independent():
    # Student's 95 % of four rounds is 3.182 standard errors; one is half of a standard deviation.
    matrix = np.array([[0.07, 0.14], [0.13, 0.26], [0.07, 0.14], [0.13, 0.26]])
    first, added = estimate(matrix, wanders=False)
    assert first.value == added.value == pytest.approx(0.1)
    half = 3.182 * 0.03 * math.sqrt(4 / 3) / 2
    assert first.high - first.value == pytest.approx(half, rel=1e-3)
    assert added.high - added.value == pytest.approx(half, rel=1e-3)
    assert estimate(matrix)[1].high > added.high
