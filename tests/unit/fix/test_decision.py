"""How sure a saving is, worked out by hand."""

import math

import numpy as np
import pytest
from scipy.stats import t as student

from stash.core.intervals import Interval
from stash.fix.decision import (
    ERROR_RATE,
    LOOKS,
    SPENT,
    estimate_saving,
    is_proven,
    look_error_rate,
    pool_spread,
)

SLOWER = [{"typed": 0.100, "new": 0.080}, {"typed": 0.110, "new": 0.088}]


def test_the_spread_is_what_is_left_of_rounds_and_arms():
    # GIVEN rounds that differ, but all arms alike: of enough rounds and arms nothing is left
    drifting = [
        {arm: factor * step for arm, step in zip("abc", (1.0, 2.0, 3.0), strict=True)}
        for factor in (1, 1.1, 1, 1.2)
    ]
    found = pool_spread([drifting])
    assert found.share == pytest.approx(0, abs=1e-12)
    assert found.freedom == 6
    # AND of few, the drift stays in: each arm's two logarithms lie ±d/2 around their mean, one degree of freedom each
    d = math.log(1.1)
    found = pool_spread([SLOWER])
    assert found.share == pytest.approx(math.sqrt(4 * (d / 2) ** 2 / 2))
    assert found.freedom == 2


def test_stages_are_pooled_and_arms_that_a_round_lacks_are_left_out():
    found = pool_spread([SLOWER, [{"a": 1.0, "b": 1.0, "c": 1.0}, {"a": 1.0, "b": 1.0}]])
    assert found.freedom == 4  # (2-1) of two arms of each stage
    assert pool_spread([[{"a": 1.0, "b": 1.0}]]) is None


def test_a_saving_is_the_difference_of_means_and_its_interval_students():
    spread = pool_spread(
        [[{"typed": 1.0, "new": 0.8}, {"typed": 1.02, "new": 0.8}, {"typed": 1.0, "new": 0.8}]]
    )
    rows = [{"typed": 1.0, "new": 0.8}] * 3
    found = estimate_saving(rows, "typed", "new", spread, 0.05)
    half = student.ppf(0.975, 4) * spread.share * math.hypot(1.0, 0.8) / math.sqrt(3)
    assert found.value == pytest.approx(0.2)
    assert found.half_width == pytest.approx(half)
    assert found.repetitions == 3
    # AND what is not known of strangers widens it in quadrature
    wider = estimate_saving(rows, "typed", "new", spread, 0.05, doubt=0.1)
    assert wider.half_width == pytest.approx(math.hypot(half, 0.1))


def test_without_a_spread_nothing_is_proven():
    found = estimate_saving([{"typed": 1.0, "new": 0.1}], "typed", "new", None, 0.05)
    assert found.half_width is None
    assert not is_proven(found)
    assert not is_proven(Interval(value=0.1, low=-0.01, high=0.2))
    assert is_proven(Interval(value=0.1, low=0.01, high=0.2))


def test_one_error_rate_holds_for_all_looks_and_statements():
    """Of jobs with nothing to gain, fewer than one in twenty ends with anything proven."""
    random = np.random.default_rng(7)
    wrong = 0
    jobs = 500
    for _ in range(jobs):
        rows = []
        for number in range(LOOKS[-1]):
            drift = random.normal(0, 0.03)
            rows.append(
                {arm: 0.1 * math.exp(drift + random.normal(0, 0.02)) for arm in ("typed", "a", "b")}
            )
            if number + 1 in LOOKS:
                spread = pool_spread([rows])
                shown = [
                    estimate_saving(rows, "typed", arm, spread, look_error_rate(2, number + 1))
                    for arm in ("a", "b")
                ]
                if any(map(is_proven, shown)):
                    wrong += 1
                    break
    assert wrong / jobs <= 0.05 / 2 + 3 * math.sqrt(0.025 * 0.975 / jobs)  # one side of two


def test_the_looks_spend_the_whole_error_rate_and_no_more():
    assert sum(SPENT.values()) == pytest.approx(1)
    assert sum(look_error_rate(4, look) for look in LOOKS) * 4 == pytest.approx(ERROR_RATE)


def test_a_saving_is_shown_only_beyond_what_is_worth_a_change():
    found = Interval(value=0.003, low=0.0005, high=0.0055)
    assert is_proven(found)
    assert not is_proven(found, 0.001)
