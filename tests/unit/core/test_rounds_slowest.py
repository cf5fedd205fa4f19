"""The slowest rank: a slow one counts in full, equal ones make no slowest out of luck."""

import numpy as np
import pytest

from stash.core.rounds import slowest_rank_times, stands_out


def test_a_rank_that_stands_out_is_taken_as_it_is():
    times = 1 + 0.01 * np.random.default_rng(1).standard_normal((6, 8))
    times[:, 3] += 0.2
    assert stands_out(times)
    assert slowest_rank_times(times) == pytest.approx(times[:, 3], abs=1e-6)


@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_equal_ranks_make_neither_a_slowest_nor_contention(ranks):
    rng = np.random.default_rng(2)
    means = []
    named = []
    for _ in range(300):
        times = 1 + 0.03 * rng.standard_normal((5, ranks))
        means.append(slowest_rank_times(times).mean() - 1)
        named.append(stands_out(times))
    # what the luckiest rank's mean reaches
    largest = 0.03 / np.sqrt(5) * np.sqrt(2 * np.log(ranks))
    assert abs(np.mean(means)) < 0.45 * largest
    assert np.mean(named) < 0.05


def test_without_noise_or_without_others_the_largest_time_it_is():
    assert slowest_rank_times(np.array([[1.0, 2.0], [1.0, 2.0]])).tolist() == [2.0, 2.0]
    assert slowest_rank_times(np.array([[1.0], [3.0]])).tolist() == [1.0, 3.0]
    assert slowest_rank_times(np.array([[1.0, 2.0, 1.5]])).tolist() == [2.0]


def test_an_accident_of_one_rank_makes_no_other_round_shorter_than_nothing():
    times = np.full((6, 2), 0.175) + 0.001 * np.arange(6)[:, None]
    times[1, 1] = 177.0  # and what is left of the rank is as fast as the other
    assert slowest_rank_times(times).tolist() == times[:, 1].tolist()


def _held(ranks, rounds):
    """Of Student's intervals of how much longer the slowest takes than a rung of noise 0.6."""
    rng = np.random.default_rng(5)
    held = []
    quantile = {6: 2.571, 12: 2.201}[rounds]
    for _ in range(400):
        over = slowest_rank_times(
            10 + ranks + rng.standard_normal((rounds, len(ranks)))
        ) - 0.6 * rng.standard_normal(rounds)
        held.append(
            abs(over.mean() - 10 - ranks.max()) <= quantile * over.std(ddof=1) / np.sqrt(rounds)
        )
    return float(np.mean(held))


@pytest.mark.parametrize("rounds", [6, 12])
@pytest.mark.parametrize("ranks", [2, 4, 8, 64])
def test_ranks_that_differ_by_as_much_as_luck_are_covered(ranks, rounds):
    assert _held(np.linspace(-0.35, 0.35, ranks), rounds) >= 0.9


@pytest.mark.parametrize("rounds", [6, 12])
def test_a_single_slow_rank_that_luck_nearly_explains_is_covered(rounds):
    assert _held(np.array([0, 0, 0, 1.0, 0, 0, 0, 0]), rounds) >= 0.85


def test_half_of_the_ranks_at_the_largest_time_have_a_slowest():
    assert np.isfinite(
        slowest_rank_times(np.array([[2.0, 2.0, 1.0], [2.1, 2.1, 1.0], [2.0, 2.0, 1.1]]))
    ).all()
