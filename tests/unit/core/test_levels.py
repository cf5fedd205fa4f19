"""Intervals of levels: honest where rounds remember each other, and not much wider where they do not."""

import math

import numpy as np
import pytest

from stash.core.levels import _GRID, _make_noise, _own_noise, level


def _trials(rng, memory, share, rounds, rungs=5):
    """Many profiles of rungs that take 1 s, whose noise of 2 % consists of a slow common ``share`` and their own."""
    lags = np.abs(np.subtract.outer(np.arange(rounds), np.arange(rounds)))
    root = np.linalg.cholesky(memory**lags)
    slow = rng.standard_normal((200, rounds)) @ root.T
    own = rng.standard_normal((200, rounds, rungs))
    return 1 + 0.02 * (math.sqrt(share) * slow[:, :, None] + math.sqrt(1 - share) * own)


def _held(trials):
    found = [level(matrix, 0) for matrix in trials]
    return float(np.mean([one.low <= 1 <= one.high for one in found]))


@pytest.mark.parametrize("rounds", [5, 10, 20])
def test_rounds_without_memory_are_covered_and_not_much_wider_than_students(rounds):
    trials = _trials(np.random.default_rng(1), 0.0, 0.0, rounds)
    assert 0.92 <= _held(trials) <= 0.99
    student = (
        {5: 2.776, 10: 2.262, 20: 2.093}[rounds]
        * trials[:, :, 0].std(axis=1, ddof=1)
        / math.sqrt(rounds)
    )
    assert np.median([level(m, 0).half_width for m in trials] / student) < 1.5


@pytest.mark.parametrize(("memory", "share"), [(0.5, 0.5), (0.5, 0.9), (0.7, 0.5)])
def test_rounds_that_remember_are_covered_where_students_interval_is_far_too_narrow(memory, share):
    trials = _trials(np.random.default_rng(2), memory, share, 16)
    student = 2.131 * trials[:, :, 0].std(axis=1, ddof=1) / 4
    assert np.mean(np.abs(trials[:, :, 0].mean(axis=1) - 1) <= student) < 0.87
    assert _held(trials) >= 0.89


def test_what_rungs_vary_by_themselves_is_told_from_what_all_share():
    rng = np.random.default_rng(7)
    own = np.array([2.0, 1.0, 1.0, 0.5])
    relative = 1 + 0.01 * (rng.standard_normal((4000, 1)) + own * rng.standard_normal((4000, 4)))
    parts = 1 / np.sqrt(1 + own**2)
    parts /= parts.sum()
    assert _own_noise(relative / relative.mean(axis=0)) == pytest.approx(
        own**2 / (parts**2 @ own**2), rel=0.15
    )
    assert _own_noise(np.ones((5, 3))).tolist() == [3.0, 3.0, 3.0]
    assert _own_noise(1 + 0.01 * rng.standard_normal((5, 2))).tolist() == [2.0, 2.0]


def test_one_round_leaves_it_unknown_and_even_rounds_leave_nothing_open():
    assert level(np.array([[1.5, 2.0]]), 1).half_width is None
    found = level(np.full((4, 3), 2.0), 0)
    assert (found.value, found.low, found.high) == (2.0, 2.0, 2.0)


def test_it_holds_its_own_mean_and_grows_with_the_unit():
    matrix = 1 + 0.05 * np.random.default_rng(3).standard_normal((9, 4))
    found = level(matrix, 2)
    milli = level(1000 * matrix, 2)
    assert found.low <= found.value <= found.high
    assert milli.high == pytest.approx(1000 * found.high)


def test_what_stands_for_the_covariances_divides_as_they_would():
    rounds = 7
    values = np.random.default_rng(4).standard_normal(rounds)
    lags = np.abs(np.subtract.outer(np.arange(rounds), np.arange(rounds)))
    for shares in (_GRID[:, 1], _GRID[:, 1] / 3):
        noise = _make_noise(rounds, shares)
        divided = noise.solve(values)
        for number, (memory, share) in enumerate(zip(_GRID[:, 0], shares, strict=True)):
            whole = (1 - share) * np.eye(rounds) + share * memory**lags
            assert divided[number] == pytest.approx(np.linalg.solve(whole, values), rel=1e-9)
            assert noise.log_determinant[number] == pytest.approx(
                np.linalg.slogdet(whole)[1], abs=1e-9
            )
