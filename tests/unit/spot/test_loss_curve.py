"""Curves from replays: levels, the power law below them, and how wrong both are elsewhere."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_courses import SHAPES, course, replays_of

from stash.core.errors import UserError
from stash.spot.fleet_records import LossCurve, LossLevel
from stash.spot.model.loss_curve import fit_curve, updates_to
from stash.spot.model.queueing import asynchronous

LEVELS = LossCurve(
    gamma1=10,
    gamma2=0,
    gamma3=100,
    gamma5=0.1,
    levels=(
        LossLevel(loss=2.0, updates=100, workers_exponent=0, batch_exponent=0),
        LossLevel(loss=1.0, updates=200, workers_exponent=0.5, batch_exponent=-0.25),
        LossLevel(loss=0.5, updates=1600, workers_exponent=1, batch_exponent=-0.5),
    ),
)


def test_what_lies_below_the_levels_is_the_power_law_that_made_the_losses():
    true = LossCurve(
        gamma1=90, gamma2=-9, gamma3=9e3, gamma5=0.4, exponent=1.5, workers_exponent=0.1
    )
    found = fit_curve(replays_of(true))
    assert found.beyond_spread < 2e-3
    assert found.curve.gamma5 == pytest.approx(true.gamma5, abs=0.01)
    assert found.curve.exponent == pytest.approx(true.exponent, abs=0.05)
    assert found.curve.workers_exponent == pytest.approx(true.workers_exponent, abs=0.05)


def test_a_course_that_is_no_power_is_told_by_its_levels():
    # A plateau, then a fall that takes N^0.3 times as long: nothing that any power of updates looks like.
    def loss(j, batch, imbalance, workers):
        return 1 + np.tanh((600 - j / workers**0.3) / 150)

    found = fit_curve(replays_of(loss))
    assert found.error < 0.05 < found.beyond_spread
    middle = found.curve.levels[len(found.curve.levels) // 2]
    assert middle.workers_exponent == pytest.approx(0.3, abs=0.05)
    assert middle.batch_exponent == pytest.approx(0, abs=0.05)


def test_too_few_kinds_of_fleets_are_refused():
    true = LossCurve(gamma1=300, gamma2=-0.5, gamma3=900, gamma5=0.4)
    with pytest.raises(
        UserError, match=r"3 kinds of fleets cannot determine.*like --fleet-sizes 1,2,4"
    ):
        fit_curve(replays_of(true)[:3])
    alike = [course(size, 64.0, 0.7, true) for size in (1, 2, 3, 4, 5)]
    with pytest.raises(UserError, match="5 kinds of fleets cannot determine"):
        fit_curve(alike)


def test_losses_that_do_not_overlap_are_refused():
    high = LossCurve(gamma1=300, gamma2=0, gamma3=900, gamma5=40)
    low = LossCurve(gamma1=300, gamma2=0, gamma3=900, gamma5=0.4)
    found = [course(*shape, high if number else low) for number, shape in enumerate(SHAPES)]
    with pytest.raises(UserError, match="have nothing in common"):
        fit_curve(found)


def test_a_loss_between_two_levels_lies_on_a_line_in_the_logarithm_of_updates():
    one = (np.array(1.0), np.array(1.0))
    assert updates_to(LEVELS, 1.0, *one) == pytest.approx(200)
    assert updates_to(LEVELS, 0.75, *one) == pytest.approx(math.sqrt(200 * 1600))
    assert updates_to(LEVELS, 5.0, *one) == pytest.approx(100)  # passed before anybody looked
    # 1600 * 4 / sqrt(16) of four workers with 16 samples
    assert updates_to(LEVELS, 0.5, np.array(16.0), np.array(4.0)) == pytest.approx(1600)


def test_below_all_levels_the_formula_is_asked_and_its_last_loss_never_reached():
    one = (np.array(1.0), np.array(1.0))
    assert updates_to(LEVELS, 0.11, *one) == pytest.approx(100 / 0.01 - 10)
    # not 100 / 0.3 - 10, fewer than the last level took
    assert updates_to(LEVELS, 0.4, *one) == pytest.approx(1600)
    assert updates_to(LEVELS, 0.1, *one) == math.inf


@given(
    st.floats(0.5, 2.0),
    st.floats(0.5, 2.0),
    st.integers(1, 50),
    st.floats(1, 4096),
)
@settings(max_examples=60, deadline=None)
def test_a_lower_loss_never_takes_fewer_updates(a, b, size, batch):
    shape = (np.array(batch), np.array(float(size)))
    high, low = (float(updates_to(LEVELS, loss, *shape)) for loss in (max(a, b), min(a, b)))
    assert high <= low * (1 + 1e-9)


CURVE = LossCurve(gamma1=100, gamma2=-1, gamma3=1000, gamma5=0.5)


def test_updates_and_samples_of_a_fleet_add_up():
    # Two workers of 0.5 s and one of 0.25 s: 2 + 2 + 4 updates a second, of 10, 10 and 30 samples.
    found = asynchronous(np.array([[2.0, 1.0]]), np.array([[0.5, 0.25]]), np.array([10.0, 30.0]))
    assert found.updates_per_second == pytest.approx([8])
    assert found.samples_per_second == pytest.approx([160])
    assert found.mean_batch == pytest.approx([20])
    # w = 20/160, 20/160, 120/160: sqrt((0.75 - 1)^2 + 2 * 0.125^2)
    assert found.imbalance == pytest.approx([math.sqrt(0.0625 + 0.03125)])


def test_two_equally_fast_workers_have_an_imbalance_of_at_least_071_and_one_alone_has_none():
    counts = np.array([[2.0, 0.0], [2.0, 1.0], [1.0, 0.0]])
    found = asynchronous(counts, np.tile([1.0, 2.0], (3, 1)), np.array([10.0, 10.0]))
    assert found.imbalance[0] == pytest.approx(math.sqrt(0.5))
    assert found.imbalance[1] >= 0.71
    assert found.imbalance[2] == 0


def test_updates_to_a_loss_invert_equation_3():
    # (1000 - 100) * sqrt(4) / (j + 100) + 0.5 at j = 800: 2.5
    batch = np.array(100.0)
    workers = np.array(4.0)
    assert updates_to(CURVE, 2.5, batch, workers) == pytest.approx(800)
    # the slope is 0
    assert updates_to(CURVE, 2.5, np.array(1000.0), workers) == math.inf


def test_a_loss_that_is_never_reached_takes_no_number_of_updates():
    assert updates_to(CURVE, 0.5, *(np.array(1.0) for _ in range(2))) == math.inf
