"""Levels by prices of types: by hand, against scipy on one row a job, and where prices do not settle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from stash.core.errors import StashError
from stash.schedule import type_prices
from stash.schedule.type_prices import CommonLevel, PricedJobs


def priced(rates: list[list[float]], gpus: list[int], counts: list[int]) -> PricedJobs:
    return of(np.array(rates, dtype=float), np.array(gpus), np.array(counts))


def of(rates: np.ndarray, gpus: np.ndarray, counts: np.ndarray) -> PricedJobs:
    """Jobs that have the same rates and GPUs are of one model."""
    _, model = np.unique(np.column_stack((rates, gpus)), axis=0, return_inverse=True)
    return PricedJobs(rates, gpus, counts, model)


def highest(rates: list[list[float]], gpus: list[int], counts: list[int], needs: list[float]) -> CommonLevel:
    return priced(rates, gpus, counts).highest(np.array(needs, dtype=float))


def by_scipy(rates: np.ndarray, gpus: np.ndarray, counts: np.ndarray, needs: np.ndarray) -> float:
    """max z over x and z, one row for each job's rate, one for its time and one for each type's GPUs."""
    jobs, types = rates.shape
    rate, time = np.zeros((jobs, jobs * types + 1)), np.zeros((jobs, jobs * types + 1))
    for job in range(jobs):
        rate[job, job * types : (job + 1) * types], rate[job, -1] = -rates[job], needs[job]
        time[job, job * types : (job + 1) * types] = 1
    full = np.zeros((types, jobs * types + 1))
    for kind in range(types):
        full[kind, kind:-1:types] = gpus
    best = linprog([*[0.0] * (jobs * types), -1.0], A_ub=np.concatenate([rate, time, full]),
                   b_ub=[*[0.0] * jobs, *[1.0] * jobs, *counts])  # fmt: skip
    return float(-best.fun)


def test_two_jobs_share_one_gpu() -> None:
    # z = x_A and 3z = x_B fill one GPU at z = 1/4; one more would bring as much again.
    found = highest([[1], [1]], [1, 1], [1], [1, 3])
    assert found.level == pytest.approx(0.25)
    assert found.x.ravel() == pytest.approx([0.25, 0.75])
    assert found.prices == pytest.approx([0.25])


def test_who_loses_least_takes_the_slow_type() -> None:
    # On type 1 A does 0.5 and B 0.8. B has type 0 for a share y: 1 - 0.5·y = 0.8 + 0.2·y, so y = 2/7, z = 6/7.
    found = highest([[1, 0.5], [1, 0.8]], [1, 1], [1, 1], [1, 1])
    assert found.level == pytest.approx(6 / 7)
    assert found.x == pytest.approx(np.array([[5 / 7, 2 / 7], [2 / 7, 5 / 7]]))


def test_gangs_take_all_their_gpus_and_no_job_more_than_all_its_time() -> None:
    # 2·z + z ≤ 2 GPUs: z = 2/3. With ten GPUs both run all the time, and no GPU is worth anything.
    assert highest([[1], [1]], [2, 1], [2], [1, 1]).level == pytest.approx(2 / 3)
    plenty = highest([[1], [1]], [2, 1], [10], [1, 1])
    assert plenty.level == pytest.approx(1)
    assert plenty.prices == pytest.approx([0])


def test_a_job_that_needs_nothing_takes_nothing() -> None:
    found = highest([[1], [1]], [1, 1], [1], [0, 2])
    assert found.level == pytest.approx(0.5)
    assert found.x.ravel() == pytest.approx([0, 1])


def test_what_needs_cost() -> None:
    # 0.75 is bought cheapest as half of the time on each type: 0.5·4 + 0.5·1.
    assert priced([[1, 0.5]], [1], [1, 1]).cost(np.array([4.0, 1.0]), np.array([0.75])) == pytest.approx(2.5)


@st.composite
def instances(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[np.ndarray]]:
    jobs, types = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    speed = st.sampled_from([0.0, 0.2, 0.5, 0.7, 1.0])
    rates = np.array([[draw(speed) for _ in range(types)] for _ in range(jobs)])
    rates[np.arange(jobs), [draw(st.integers(0, types - 1)) for _ in range(jobs)]] = 1.0
    gpus = np.array([draw(st.sampled_from([1, 2, 4])) for _ in range(jobs)])
    counts = np.array([draw(st.integers(4, 9)) for _ in range(types)])
    need = st.one_of(st.just(0.0), st.floats(0.1, 10))
    needs = [np.array([draw(st.floats(0.1, 10)), *(draw(need) for _ in range(jobs - 1))]) for _ in range(2)]
    return rates, gpus, counts, needs


@settings(max_examples=40, deadline=None)
@given(instances())
def test_the_level_is_that_of_scipy_and_its_shares_reach_it(
    given: tuple[np.ndarray, np.ndarray, np.ndarray, list[np.ndarray]],
) -> None:
    rates, gpus, counts, several = given
    jobs = of(rates, gpus, counts)
    for needs in several:  # the second begins at the prices of the first
        found = jobs.highest(needs)
        assert found.level == pytest.approx(by_scipy(rates, gpus, counts, needs), rel=1e-7)
        assert ((rates * found.x).sum(axis=1) >= found.level * needs - 1e-7).all()
        assert (found.x.sum(axis=1) <= 1 + 1e-9).all()
        assert (found.x.T @ gpus <= counts + 1e-7).all()


def test_prices_that_do_not_settle_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type_prices, "_MOST", 1)
    with pytest.raises(StashError, match="did not settle: after 1 programs 2 jobs reach"):
        highest([[1, 0.5], [1, 0.8]], [1, 1], [1, 1], [1, 1])


def test_hundreds_of_jobs_of_few_models_with_equal_needs_among_them() -> None:
    draw = np.random.default_rng(0)
    rates, gpus = draw.uniform(0.1, 1, (9, 3)), draw.choice([1, 2, 4], 9)
    model = draw.integers(9, size=200)
    needs = np.where(draw.random(200) < 0.3, 0.5, 10 ** draw.uniform(-4, 0, 200))
    jobs, counts = rates[model] / rates[model].max(axis=1, keepdims=True), np.array([20, 30, 40])
    found = PricedJobs(jobs, gpus[model], counts, model).highest(needs)
    assert found.level == pytest.approx(by_scipy(jobs, gpus[model], counts, needs), rel=1e-9)
    assert ((jobs * found.x).sum(axis=1) >= found.level * needs * (1 - 1e-9)).all()
    assert (found.x.T @ gpus[model] <= counts * (1 + 1e-9)).all()
