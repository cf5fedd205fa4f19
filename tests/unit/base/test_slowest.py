"""The slowest rank: a slow one counts in full, equal ones make no slowest out of luck."""

from __future__ import annotations

import numpy as np
import pytest

from stash.base.stats.slowest import slowest, stands_out


def test_a_rank_that_stands_out_is_taken_as_it_is():
    times = 1 + 0.01 * np.random.default_rng(1).standard_normal((6, 8))
    times[:, 3] += 0.2
    assert stands_out(times)
    assert slowest(times).tolist() == times[:, 3].tolist()


@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_equal_ranks_make_neither_a_slowest_nor_contention(ranks):
    rng, means, named = np.random.default_rng(2), [], []
    for _ in range(300):
        times = 1 + 0.03 * rng.standard_normal((5, ranks))
        means.append(slowest(times).mean() - 1)
        named.append(stands_out(times))
    largest = 0.03 / np.sqrt(5) * np.sqrt(2 * np.log(ranks))  # what the luckiest rank's mean reaches
    assert abs(np.mean(means)) < 0.45 * largest
    assert np.mean(named) < 0.05


def test_without_noise_or_without_others_the_largest_time_it_is():
    assert slowest(np.array([[1.0, 2.0], [1.0, 2.0]])).tolist() == [2.0, 2.0]
    assert slowest(np.array([[1.0], [3.0]])).tolist() == [1.0, 3.0]
    assert slowest(np.array([[1.0, 2.0, 1.5]])).tolist() == [2.0]


def test_ranks_that_never_differ_take_what_all_take():
    assert slowest(np.array([[1.0, 1.0], [2.0, 2.0]])).tolist() == [1.0, 2.0]
