"""What several devices cost each other, held against the losses that were published."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stash.catalog.reference import node_scaling
from stash.predict import compute_ratios


def test_crowding_is_drawn_from_the_losses_that_were_published():
    losses = [each.loss / math.log2(each.devices) for each in node_scaling()]
    found = compute_ratios.crowding(2)
    assert found.low < found.value < found.high <= max(losses)
    drawn = compute_ratios.crowding_quantiles(np.linspace(0, 1, 1001), 2)
    assert (np.diff(drawn) >= 0).all()
    assert drawn[-1] - drawn[0] == pytest.approx(max(losses) - min(losses))
    # Models lose some per cent, and a few a third: the mean, what the middle one loses, lies above most draws.
    assert drawn.mean() == pytest.approx(found.value, abs=0.001)
    assert np.median(drawn) < found.value < 0.06
    # Each doubling loses as much.
    assert compute_ratios.crowding(8).value == pytest.approx(3 * found.value)


def test_a_source_is_left_out_where_it_is_predicted():
    source = node_scaling()[0].source
    places = np.linspace(0, 1, 101)
    assert not np.allclose(
        compute_ratios.crowding_quantiles(places, 4),
        compute_ratios.crowding_quantiles(places, 4, without=source),
    )
