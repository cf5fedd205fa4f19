"""Equations (1) to (5) of spotDNN against numbers worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stash.spot.fleet_records import LossCurve
from stash.spot.model.loss_curve import updates_to
from stash.spot.model.queueing import asynchronous

CURVE = LossCurve(gamma1=100, gamma2=-1, gamma3=1000, gamma5=0.5)


def test_updates_and_samples_of_a_fleet_add_up() -> None:
    # Two workers of 0.5 s and one of 0.25 s: 2 + 2 + 4 updates a second, of 10, 10 and 30 samples.
    found = asynchronous(np.array([[2.0, 1.0]]), np.array([[0.5, 0.25]]), np.array([10.0, 30.0]))
    assert found.updates_per_second == pytest.approx([8])
    assert found.samples_per_second == pytest.approx([160])
    assert found.mean_batch == pytest.approx([20])
    # w = 20/160, 20/160, 120/160: sqrt((0.75 - 1)^2 + 2 * 0.125^2)
    assert found.imbalance == pytest.approx([math.sqrt(0.0625 + 0.03125)])


def test_two_equally_fast_workers_have_an_imbalance_of_at_least_071_and_one_alone_has_none() -> (
    None
):
    counts = np.array([[2.0, 0.0], [2.0, 1.0], [1.0, 0.0]])
    found = asynchronous(counts, np.tile([1.0, 2.0], (3, 1)), np.array([10.0, 10.0]))
    assert found.imbalance[0] == pytest.approx(math.sqrt(0.5))
    assert found.imbalance[1] >= 0.71
    assert found.imbalance[2] == 0


def test_updates_to_a_loss_invert_equation_3() -> None:
    # (1000 - 100) * sqrt(4) / (j + 100) + 0.5 at j = 800: 2.5
    batch, workers = np.array(100.0), np.array(4.0)
    assert updates_to(CURVE, 2.5, batch, workers) == pytest.approx(800)
    # the slope is 0
    assert updates_to(CURVE, 2.5, np.array(1000.0), workers) == math.inf


def test_a_loss_that_is_never_reached_takes_no_number_of_updates() -> None:
    assert updates_to(CURVE, 0.5, *(np.array(1.0) for _ in range(2))) == math.inf
