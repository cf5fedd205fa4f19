"""Student's and the normal distribution: what is known by hand, and what SciPy says, which the tests have."""

import math

import numpy as np
import pytest
from scipy import special

from stash.core.distributions import (
    normal_probability,
    normal_quantile,
    student_probability,
    student_quantile,
)

LEVELS = np.array(
    [1e-9, 1e-4, 0.001, 0.005, 0.025, 0.05, 0.2, 0.45, 0.5, 0.6, 0.9, 0.975, 0.995, 0.9999]
)
VALUES = np.concatenate([-np.logspace(3, -6, 40), [0.0], np.logspace(-6, 3, 40)])


def test_by_hand():
    assert student_quantile(1, 0.975) == pytest.approx(math.tan(math.pi * 0.475), rel=1e-13)
    assert student_quantile(2, 0.975) == pytest.approx(
        0.95 / math.sqrt(2 * 0.975 * 0.025), rel=1e-13
    )
    assert student_probability(1, [-1.0, 0.0, 1.0]) == pytest.approx([0.25, 0.5, 0.75], abs=1e-15)
    assert student_probability(2, 1.0) == pytest.approx(0.5 + 1 / math.sqrt(12), abs=1e-15)
    assert normal_quantile([0.0, 0.5, 1.0]).tolist() == [-math.inf, 0.0, math.inf]
    assert normal_quantile(0.975) == pytest.approx(1.959963984540054, rel=1e-14)
    assert normal_probability(1.959963984540054) == pytest.approx(0.975, rel=1e-14)


def test_normal_quantiles_are_scipys():
    levels = np.concatenate([LEVELS, 10.0 ** -np.arange(3, 300, 7)])
    assert normal_quantile(levels) == pytest.approx(special.ndtri(levels), rel=1e-13, abs=1e-15)


@pytest.mark.parametrize("freedom", [2, 3, 9, 29, 99, 100, 1000])
def test_students_is_scipys(freedom):
    assert student_probability(freedom, VALUES) == pytest.approx(
        special.stdtr(freedom, VALUES), abs=1e-12
    )
    assert student_quantile(freedom, LEVELS) == pytest.approx(
        special.stdtrit(freedom, LEVELS), rel=1e-6, abs=1e-12
    )


@pytest.mark.parametrize("freedom", [1001, 10**6, 10**15])
def test_many_degrees_of_freedom_are_nearly_normal(freedom):
    levels = LEVELS[3:-1]
    assert student_quantile(freedom, levels) == pytest.approx(
        special.stdtrit(min(freedom, 1e12), levels), rel=1e-5
    )
    assert student_probability(freedom, [-2.0, 0.5]) == pytest.approx(
        special.stdtr(freedom, [-2.0, 0.5]), rel=1e-5
    )


def test_without_a_degree_of_freedom_nothing_is_known():
    assert math.isnan(student_quantile(0, 0.975))
