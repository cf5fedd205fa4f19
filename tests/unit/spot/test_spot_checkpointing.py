"""Intervals between checkpoints, worked by hand, and jobs that go on from them: exact forms against drawn runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from restart_closed_forms import expected_seconds, in_time_exactly

from stash.spot.risk.lifetimes import Gang, Memoryless, WeibullLife
from stash.spot.risk.restarting import (
    CheckpointedJob,
    daly,
    drawn_seconds,
    exact,
    interval,
    numerical,
    young,
)


def memoryless(rate: float) -> Gang:
    return Gang(((Memoryless(rate), 1),))


def test_young_and_daly_worked_by_hand() -> None:
    # C = 50 s, M = 10,000 s: √(2 · 50 · 10,000) = 1,000; √(C / 2M) = 0.05, so 1,000 (1 + 0.05/3 + 0.0025/9) − 50
    assert young(50, 10_000) == pytest.approx(1_000)
    assert daly(50, 10_000) == pytest.approx(1_000 * (1 + 0.05 / 3 + 0.0025 / 9) - 50)
    assert daly(50, 10_000) == pytest.approx(966.944, abs=1e-3)
    assert daly(20_000, 10_000) == 10_000  # from C = 2 M on, the interval is M


@settings(max_examples=60, deadline=None)
@given(mtbf=st.floats(60, 1e7), share=st.floats(1e-5, 3))
def test_the_exact_interval_makes_the_derivative_zero_and_no_other_is_better(mtbf: float, share: float) -> None:
    write = share * mtbf
    best = exact(write, mtbf)
    assert (1 - best / mtbf) * math.exp((best + write) / mtbf) == pytest.approx(1, rel=1e-6)

    def waste(seconds: float) -> float:
        return math.expm1((seconds + write) / mtbf) / seconds

    assert all(waste(best) <= waste(best * factor) * (1 + 1e-9) for factor in (0.5, 0.9, 1.1, 2))
    assert waste(best) <= waste(daly(write, mtbf)) * (1 + 1e-9)
    if share < 0.01:
        assert daly(write, mtbf) == pytest.approx(best, rel=1e-4)


def test_the_numerical_optimum_is_the_exact_one_without_memory_and_differs_with_it() -> None:
    assert numerical(60, memoryless(1 / 86_400), 120) == pytest.approx(exact(60, 86_400), rel=1e-3)
    # Machines that die at 10 h, all but exactly: one checkpoint every 30 s of writing lost, so few, evenly spread.
    sudden = Gang(((WeibullLife(60.0, 36_000), 1),))
    found = interval(600, sudden, 120, None)
    assert "age matters" in found.how
    assert found.best > 2 * found.young


def test_a_checkpoint_is_just_in_time_if_it_fits_the_notice() -> None:
    assert interval(20, memoryless(1e-5), 60, 30).just_in_time
    assert not interval(40, memoryless(1e-5), 60, 30).just_in_time
    assert not interval(20, memoryless(1e-5), 60, None).just_in_time


def test_the_expected_time_worked_by_hand() -> None:
    # One stretch of 1 h, λ = 1 / h, no restart: (e − 1) h. With R = 1 h: (e (e − 1) + (e − 1)) h.
    assert expected_seconds(CheckpointedJob(1, 2, 0, 0), 1) == pytest.approx(math.e - 1)
    assert expected_seconds(CheckpointedJob(1, 2, 0, 1), 1) == pytest.approx((math.e + 1) * (math.e - 1))
    # Two stretches: 1 + 0.5 of writing, and 1 without.
    assert expected_seconds(CheckpointedJob(2, 1, 0.5, 0), 1) == pytest.approx(math.e**1.5 - 1 + math.e - 1)
    assert expected_seconds(CheckpointedJob(2, 1, 0.5, 3), 0) == 5.5


def test_the_chance_to_be_in_time_worked_by_hand() -> None:
    job = CheckpointedJob(1, 2, 0, 0)
    assert in_time_exactly(job, 1, 0.99) == 0
    assert in_time_exactly(job, 1, 1) == pytest.approx(1 / math.e)  # no revocation
    # The lives that k revocations end add up to t with density tᵏ⁻¹ e⁻ᵗ / (k − 1)!, which summed over k is 1. A last
    # one of 1 or more does the job: P(T ≤ 1 + x) = e⁻¹ (1 + x) for x below 1.
    for added in (0.1, 0.5, 0.9):
        assert in_time_exactly(job, 1, 1 + added) == pytest.approx((1 + added) / math.e, abs=2e-4)
    assert in_time_exactly(CheckpointedJob(1e6, 1e7, 0, 0), 1, 1e9) == 0


CASES = [
    (1 / 7_200, CheckpointedJob(36_000, 3_000, 60, 120)),
    (1 / 36_000, CheckpointedJob(7_200, 1_200, 20, 120)),
    (1 / 3_000, CheckpointedJob(20_000, 1_000, 30, 300)),
]


@pytest.mark.parametrize(("rate", "job"), CASES)
def test_ten_thousand_runs_agree_with_the_closed_forms_within_one_per_cent(rate: float, job: CheckpointedJob) -> None:
    seconds, revocations = drawn_seconds(job, memoryless(rate), 10_000, np.random.default_rng(4))
    error = seconds.std() / 100
    expected = expected_seconds(job, rate)
    assert abs(seconds.mean() - expected) < 4 * error
    assert 4 * error < 0.02 * expected  # which makes the line below no matter of luck alone
    assert seconds.mean() == pytest.approx(expected, rel=0.01)
    assert revocations.mean() == pytest.approx(rate * expected, rel=0.05)  # Wald: λ · E[T]
    for share in (0.3, 0.6, 0.95):
        deadline = float(np.quantile(seconds, share))
        chance = in_time_exactly(job, rate, deadline)
        assert abs((seconds <= deadline).mean() - chance) < 4 * math.sqrt(chance * (1 - chance) / 10_000)


def test_what_never_ends_is_infinitely_late_and_ends_the_drawing() -> None:
    job = CheckpointedJob(10_000, 20_000, 0, 0)
    seconds, _ = drawn_seconds(job, memoryless(1 / 100), 50, np.random.default_rng(4), until=50_000)
    assert np.isinf(seconds).all()
    assert expected_seconds(CheckpointedJob(1e9, 1e10, 0, 0), 1) == math.inf


@settings(max_examples=25, deadline=None)
@given(rate=st.floats(1e-6, 1e-3), work=st.floats(100, 1e5), share=st.floats(0.02, 2), slack=st.floats(1.01, 3))
def test_more_time_and_fewer_revocations_never_hurt(rate: float, work: float, share: float, slack: float) -> None:
    job = CheckpointedJob(work, work * share, 30, 120)
    deadline = slack * (job.restart + float(job.stretches.sum()))
    chance = in_time_exactly(job, rate, deadline)
    assert -1e-3 <= chance <= 1 + 1e-3
    assert chance <= in_time_exactly(job, rate, 1.5 * deadline) + 2e-3
    assert chance <= in_time_exactly(job, rate / 2, deadline) + 2e-3
