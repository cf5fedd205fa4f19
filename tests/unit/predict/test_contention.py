"""What several devices cost each other, held against the losses that were published."""

from __future__ import annotations

import numpy as np
import pytest

from stash.catalog.reference import node_scaling
from stash.predict import compute_ratios


def test_crowding_is_drawn_from_the_losses_that_were_published() -> None:
    losses = [each.loss for each in node_scaling()]
    found = compute_ratios.crowding()
    assert min(losses) <= found.low < found.value < found.high <= max(losses)
    drawn = compute_ratios.crowded(np.linspace(0, 1, 1001))
    assert (np.diff(drawn) >= 0).all()
    assert (drawn[0], drawn[-1]) == pytest.approx((min(losses), max(losses)))
    # Models lose some per cent, and a few a third: the mean lies far above the middle.
    assert drawn.mean() > 1.2 * found.value
