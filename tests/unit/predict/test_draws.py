"""Draws: what they have in common, what they keep of a number, and that names and not values decide them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stash.core.errors import StashError
from stash.core.intervals import Interval
from stash.predict.draws import Draws, Quantity, intervals, least_certain
from stash.predict.draws import given_quantity as wished

DRAWS = Draws()


def quantity(value, low=None, high=None):
    return Quantity(value=value, low=low, high=high, origin="measured", source="a test")


def test_one_draw_lies_in_each_equal_part():
    assert np.allclose(np.sort(DRAWS.uniforms("a")) * DRAWS.count, np.arange(DRAWS.count) + 0.5)


def test_a_rate_keeps_its_median_and_its_ends_and_is_never_negative():
    drawn = DRAWS.draw("rate", quantity(10.0, 5.0, 40.0))
    assert np.median(drawn) == pytest.approx(10.0, rel=0.02)
    assert np.percentile(drawn, [2.5, 97.5]) == pytest.approx([5.0, 40.0], rel=0.05)
    assert drawn.min() > 0


def test_a_measured_mean_stays_exactly_what_it_was():
    drawn = DRAWS.draw_mean("stall", Interval(value=0.001, low=-0.002, high=0.01, repetitions=5))
    assert drawn.mean() == pytest.approx(0.001, abs=1e-15)
    assert drawn.min() < 0 < drawn.max()


def test_without_ends_every_draw_is_the_value():
    assert set(DRAWS.draw("x", wished(3.0, "--nodes"))) == {3.0}
    assert set(DRAWS.draw_mean("x", Interval(value=3.0))) == {3.0}


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=4))
def test_intervals_always_hold_their_mean(shifts):
    found = intervals(np.array([shift + DRAWS.normals(str(shift)) ** 3 for shift in shifts]))
    assert all(each.holds_itself for each in found)


def test_a_quantity_outside_its_own_interval_is_refused():
    with pytest.raises(StashError, match="is not between"):
        quantity(1.0, 2.0, 3.0)


def test_the_worst_origin_is_the_least_certain():
    assert least_certain(["given", "measured", "scaled"]) == "scaled"
    assert least_certain(["data sheet", "measured"]) == "data sheet"
