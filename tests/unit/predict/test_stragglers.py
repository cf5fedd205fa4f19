"""The slowest of many ranks: against the integral itself, against simulation, and from profiles."""

from __future__ import annotations

import numpy as np
import pytest
from profile_builder import build
from scipy.integrate import quad
from scipy.stats import norm

from stash.predict.draws import Draws
from stash.predict.stragglers import MoreRanks, expected_maximum, single_steps


@pytest.mark.parametrize("ranks", [2, 4, 64, 1000, 16384])
def test_the_expected_maximum_is_the_integral(ranks):
    density, _ = quad(
        lambda x: x * ranks * norm.pdf(x) * norm.cdf(x) ** (ranks - 1), -10, 10, points=[0, 3, 4, 5]
    )
    assert expected_maximum(ranks) == pytest.approx(density, rel=0.005)


def test_two_ranks_wait_for_sigma_over_root_pi():
    assert expected_maximum(1) == 0.0
    assert expected_maximum(2) == pytest.approx(1 / np.sqrt(np.pi), rel=1e-4)


def test_more_ranks_wait_longer_by_the_spread_of_single_steps() -> None:
    profile = build(
        {"crowd": [0.1] * 5}, block_extra={"crowd": {"step_seconds": (0.09, 0.11)}}, ranks=2
    )
    waits = MoreRanks(profile, 0.1, Draws(8)).waiting(2, 64)
    spread = np.std(single_steps(profile), ddof=1)
    assert waits == pytest.approx((2.344 - 0.564) * spread, rel=0.002)


def test_single_steps_are_taken_from_cpu_blocks_around_their_own_mean():
    profile = build({"crowd": [0.1, 0.1]}, block_extra={"crowd": {"step_seconds": (0.09, 0.11)}})
    steps = single_steps(profile)
    # Deviations of ±10 ms from a mean of two, widened by √(2/1).
    assert sorted(np.abs(steps).round(6)) == [pytest.approx(0.01 * np.sqrt(2), abs=1e-6)] * 8


def test_on_a_gpu_blocks_are_compared_since_steps_are_only_enqueued():
    profile = build(
        {"crowd": [0.09, 0.11]},
        device="cuda",
        block_extra={"crowd": {"step_seconds": (0.0001, 0.0001)}},
    )
    # Block means ±10 ms of 10 steps each: single steps vary by √10 more, around a mean of two.
    assert np.abs(single_steps(profile)).max() == pytest.approx(0.01 * np.sqrt(10 * 2), rel=1e-6)


def test_a_profile_without_crowded_blocks_tells_nothing():
    assert len(single_steps(build({"solo": [0.1]}, ranks=1))) == 0
