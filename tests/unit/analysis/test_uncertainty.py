"""One interval: its parts add in quadrature."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stash.analysis.breakdown import Parts
from stash.analysis.uncertainty import (
    LAUNCH_SPREAD,
    SECONDS,
    SHARE,
    STEP_SHARE,
    launch_error,
    method_error,
    whole_stall,
)
from stash.core.intervals import NORMAL, Interval


def test_the_parts_add_in_quadrature_on_either_side():
    noise = Interval(value=0.03, low=0.027, high=0.034)
    stall = whole_stall("prep", noise, 0.1, correction=0.002)
    method = math.hypot(SECONDS["prep"], SHARE * 0.03)
    launch = NORMAL * LAUNCH_SPREAD * 0.1
    assert stall.parts == Parts(
        noise=noise.half_width, method=method, launch=launch, correction=0.002
    )
    assert stall.low == pytest.approx(0.03 - math.hypot(0.003, method, launch, 0.002))
    assert stall.high == pytest.approx(0.03 + math.hypot(0.004, method, launch, 0.002))


def test_of_a_short_step_the_method_errs_by_a_share_of_it_at_most():
    of_short, of_long = (method_error("prep", 0.0, step) for step in (0.002, 0.2))
    assert of_short == pytest.approx(STEP_SHARE * 0.002)
    assert of_long == pytest.approx(SECONDS["prep"])


def test_of_transfer_no_error_of_the_method_is_known():
    stall = whole_stall("transfer", Interval(value=0.01, low=0.01, high=0.01), 0.1)
    assert stall.parts.method is None
    assert stall.width == pytest.approx(launch_error(0.1))


def test_of_one_round_nothing_is_known_but_its_parts():
    stall = whole_stall("prep", Interval(value=0.03), 0.1)
    assert (stall.low, stall.high, stall.parts.noise) == (None, None, None)


def test_errors_of_the_size_that_is_assumed_are_held_as_often_as_is_said():
    rng = np.random.default_rng(5)
    held = []
    for _ in range(2000):
        noise, method, launch = rng.standard_normal(3) * (
            0.002,
            0.5 * SECONDS["network"],
            LAUNCH_SPREAD * 0.2,
        )
        value = 0.05 + noise + method + launch
        stall = whole_stall(
            "network", Interval(value=value, low=value - 0.00392, high=value + 0.00392), 0.2
        )
        held.append(stall.low <= 0.05 <= stall.high)
    assert 0.93 < np.mean(held) < 0.97


@pytest.mark.parametrize("name", ["transfer", "prep", "fetch"])
def test_of_what_is_added_there_is_never_less_than_nothing(name):
    assert whole_stall(name, Interval(value=0.05, low=-0.1, high=0.2), 0.1).low == 0.0
    below = whole_stall(name, Interval(value=-0.01, low=-0.1, high=0.2), 0.1)
    assert below.low < -0.1  # what was measured below it is shown as it was measured
