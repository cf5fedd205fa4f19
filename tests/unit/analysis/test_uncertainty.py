"""One interval: its parts add in quadrature, and its ends stay where the truth can be."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from breakdowns import CALM
from profile_builder import build

from stash.analysis.attribution import attribute
from stash.analysis.breakdown import Parts
from stash.analysis.uncertainty import LAUNCH_SPREAD, SECONDS, SHARE, launch_error, whole_stall
from stash.core.intervals import NORMAL, Interval
from stash.core.records.profile import Profile


def test_the_parts_add_in_quadrature_on_either_side():
    noise = Interval(value=0.03, low=0.027, high=0.034)
    stall = whole_stall("prep", noise, 0.1, correction=0.002)
    method, launch = math.hypot(SECONDS["prep"], SHARE * 0.03), NORMAL * LAUNCH_SPREAD * 0.1
    assert stall.parts == Parts(noise=noise.half_width, method=method, launch=launch, correction=0.002)
    assert stall.low == pytest.approx(0.03 - math.hypot(0.003, method, launch, 0.002))
    assert stall.high == pytest.approx(0.03 + math.hypot(0.004, method, launch, 0.002))


def test_of_transfer_no_error_of_the_method_is_known():
    stall = whole_stall("transfer", Interval(value=0.01, low=0.01, high=0.01), 0.1)
    assert stall.parts.method is None
    assert stall.width == pytest.approx(launch_error(0.1))


def test_of_one_round_nothing_is_known_but_its_parts():
    stall = whole_stall("prep", Interval(value=0.03), 0.1)
    assert (stall.low, stall.high, stall.parts.noise) == (None, None, None)


def test_errors_of_the_size_that_is_assumed_are_held_as_often_as_is_said():
    rng, held = np.random.default_rng(5), []
    for _ in range(2000):
        noise, method, launch = rng.standard_normal(3) * (0.002, 0.5 * SECONDS["network"], LAUNCH_SPREAD * 0.2)
        value = 0.05 + noise + method + launch
        stall = whole_stall("network", Interval(value=value, low=value - 0.00392, high=value + 0.00392), 0.2)
        held.append(stall.low <= 0.05 <= stall.high)
    assert 0.93 < np.mean(held) < 0.97


@pytest.mark.parametrize("name", ["transfer", "prep", "fetch"])
def test_of_what_is_added_there_is_never_less_than_nothing(name):
    wide = {"value": 0.05, "low": -0.1, "high": 0.2}
    assert whole_stall(name, Interval(**wide), 0.1, least=0.0).low == 0.0
    below = whole_stall(name, Interval(value=-0.01, low=-0.1, high=0.2), 0.1, least=0.0)
    assert below.low < -0.1  # what was measured below it is shown as it was measured


def on_one_core(cpu_seconds: float, **loaders: object) -> Profile:
    noisy = {"solo": [0.05, 0.2, 0.06, 0.09], "crowd": [0.2, 0.21, 0.2, 0.2]}
    profile = build(noisy, block_extra={"solo": {"cpu_seconds": cpu_seconds * 10}})
    ranks = tuple(rank.model_copy(update={"cores": 1}) for rank in profile.ranks)
    return profile.model_copy(update={"ranks": ranks})


def test_compute_takes_at_least_its_processor_time_on_all_its_cores():
    low = attribute(on_one_core(0.04)).stall("compute").low
    assert low == pytest.approx(0.04, rel=0.01)
    assert attribute(build(CALM)).stall("compute").low > 0.09  # unknown, and nothing is cut
    assert attribute(on_one_core(0.0)).stall("compute").low < 0.0
    # AND no more than rounds are sure of it: they say 40 ms on average, of 20 to 60
    uneven = on_one_core(0.04)
    ran = {0: 0.2, 1: 0.6, 2: 0.4, 3: 0.4}
    blocks = [b if b.rung != "solo" else replace(b, cpu_seconds=ran[b.round]) for b in uneven.blocks]
    assert attribute(uneven.model_copy(update={"blocks": tuple(blocks)})).stall("compute").low < 0.02


def test_the_step_holds_another_launch_too():
    step = attribute(build(CALM)).step
    assert step.half_width == pytest.approx(launch_error(step.value))
