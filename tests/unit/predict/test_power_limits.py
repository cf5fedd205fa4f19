"""What a power limit does, by published curves: the table, the fit by hand, and how sure it is."""

from __future__ import annotations

import math

import pytest

from stash.predict.power_limits import (
    PowerPoint,
    fit_power,
    power_points,
    shipped_fit,
)


def test_the_published_curves_are_whole() -> None:
    points = power_points()
    assert len(points) == 991
    assert {point.gpu for point in points} == {"P100", "V100", "RTX-6000"}
    assert len({point.model for point in points}) == 5
    assert all(0.3 < point.limit < 1 and 0 < point.draw < 1.05 for point in points)


def test_a_curve_that_holds_exactly_is_found_and_leaves_no_spread() -> None:
    def point(model: str, limit: float, draw: float) -> PowerPoint:
        x = max(0.0, math.log(1.1 * draw / limit))
        return PowerPoint(
            model, "V100", limit, draw, (0.3 * x + 0.5 * x * x, -0.6 * x + 0.2 * x * x)
        )

    points = [
        point(model, limit / 100, draw)
        for model, draw in (("a", 0.9), ("b", 0.7), ("c", 0.5))
        for limit in range(40, 100)
    ]
    found = fit_power(points).predict(limit=0.6, draw=0.8)
    x = math.log(1.1 * 0.8 / 0.6)
    assert found.seconds.value == pytest.approx(math.exp(0.3 * x + 0.5 * x * x))
    assert found.joules.value == pytest.approx(math.exp(-0.6 * x + 0.2 * x * x))
    assert found.seconds.high == pytest.approx(found.seconds.value)


def test_a_limit_above_what_a_gpu_draws_changes_nothing() -> None:
    found = shipped_fit().predict(limit=0.8, draw=0.5)
    assert (found.seconds.value, found.joules.value) == (1.0, 1.0)
    assert found.seconds.low is not None
    assert found.seconds.low < 1 < (found.seconds.high or 0.0)


def test_lower_limits_take_longer_and_save_less_and_less() -> None:
    effects = [shipped_fit().predict(limit / 100, 0.9) for limit in range(95, 45, -5)]
    seconds = [effect.seconds.value for effect in effects]
    assert seconds[1:] == sorted(seconds[1:])
    assert 1.0 < seconds[-1] < 1.5
    assert 0.7 < min(effect.joules.value for effect in effects) < 0.9
