"""A number with its spread: when it is known, how often it is right, what it proves."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stash.core.intervals import Interval, find_uneven, median_interval, overall_interval


def test_a_single_repetition_has_no_interval_and_is_never_below_anything():
    once = median_interval([5.0])
    assert (once.value, once.low, once.high) == (5.0, None, None)
    assert not once.is_below(1e9)
    assert not once.is_above(0.0)


def test_only_an_interval_wholly_beyond_the_fact_and_its_tolerance_counts():
    measured = Interval(value=8.0, low=7.0, high=9.5, repetitions=7)
    assert measured.is_below(10.0)
    # the value is below 9, the interval's end is not
    assert not measured.is_below(10.0, tolerance=0.1)
    assert measured.is_above(6.0)
    assert not measured.is_above(7.5)


def test_from_six_repetitions_on_the_ends_are_the_sign_tests_order_statistics():
    # Published tables: n = 6 → 1st and 6th, n = 9 → 2nd and 8th, n = 20 → 6th and 15th.
    for count, first in ((6, 1), (9, 2), (20, 6)):
        interval = median_interval(range(1, count + 1))
        assert (interval.low, interval.high) == (first, count + 1 - first)


@pytest.mark.parametrize("count", [3, 5, 8, 15])
def test_intervals_cover_the_true_median_about_as_often_as_they_say(count):
    generator = np.random.default_rng(7)
    trials = [median_interval(generator.lognormal(0.0, 0.1, count)) for _ in range(600)]
    covered = np.mean([trial.low <= 1.0 <= trial.high for trial in trials])
    assert 0.93 <= covered <= 0.999


def test_an_overall_interval_covers_the_true_rate_about_as_often_as_it_says():
    generator = np.random.default_rng(7)
    trials = [overall_interval(1 / generator.normal(2.0, 0.3, 6)) for _ in range(600)]
    covered = np.mean([trial.low <= 0.5 <= trial.high for trial in trials])
    assert 0.92 <= covered <= 0.98


def test_an_overall_interval_is_unknown_where_the_noise_is_as_large_as_the_rate():
    assert overall_interval([5.0]) == Interval(value=5.0)
    found = overall_interval([1.0, 100.0])
    assert (found.low, found.high, found.repetitions) == (None, None, 2)


@settings(max_examples=150, derandomize=True, deadline=None)
@given(
    members=st.integers(2, 28),
    repetitions=st.integers(2, 20),
    noise=st.floats(0.0, 0.1),
    seed=st.integers(0, 10**6),
)
def test_even_things_with_ordinary_noise_are_never_called_uneven(members, repetitions, noise, seed):
    generator = np.random.default_rng(seed)
    rates = {
        i: median_interval(generator.lognormal(0.0, noise, repetitions)) for i in range(members)
    }
    assert find_uneven(rates) is None


@settings(max_examples=150, derandomize=True, deadline=None)
@given(
    members=st.integers(2, 28),
    repetitions=st.integers(5, 20),
    noise=st.floats(0.0, 0.05),
    seed=st.integers(0, 10**6),
)
def test_what_is_twice_as_slow_is_always_named(members, repetitions, noise, seed):
    generator = np.random.default_rng(seed)
    slow = seed % members
    rates = {
        i: median_interval(
            generator.lognormal(math.log(0.5 if i == slow else 1.0), noise, repetitions)
        )
        for i in range(members)
    }
    assert find_uneven(rates)[1] == (slow,)


def test_within_noise_means_that_the_interval_contains_zero():
    assert Interval(value=0.1, low=-0.1, high=0.3).within_noise
    assert Interval(value=-0.1, low=-0.3, high=0.0).within_noise
    assert not Interval(value=0.2, low=0.1, high=0.3).within_noise
    assert not Interval(value=-0.2, low=-0.3, high=-0.1).within_noise


@pytest.mark.parametrize(
    ("value", "low", "high", "holds"),
    [
        (2.0, 1.0, 3.0, True),
        (2.0, 2.0, 2.0, True),
        (2.0, None, None, True),
        (2.0, 2.5, 3.0, False),
        (2.0, 1.0, 1.5, False),
        (2.0, 3.0, 1.0, False),
        (2.0, 1.0, None, False),
        (math.nan, 1.0, 3.0, False),
        (math.nan, None, None, False),
        (2.0, 1.0, math.inf, False),
    ],
)
def test_an_interval_holds_its_own_value_or_is_wholly_unknown(value, low, high, holds):
    assert Interval(value=value, low=low, high=high).holds_itself is holds
