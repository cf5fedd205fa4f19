"""Loss by loss: sizes go off the power law as far as replays tell, and each loss has a spread of its own."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stash.spot.fleet_records import LossCurve, LossLevel, SizeFactor
from stash.spot.model.loss_curve import updates_to

BEYOND = LossCurve(gamma1=10, gamma2=0, gamma3=100, gamma5=0.1)
FLEETS = tuple(
    (size, batch, math.sqrt(1 - 1 / size)) for size in (1, 2, 4, 8) for batch in (32.0, 64.0, 128.0)
)
"""N, bw, R."""


def updates(curve: LossCurve, loss: float, size: float) -> float:
    return float(updates_to(curve, loss, np.array(64.0), np.array(0.9), np.array(size)))


def test_a_factor_is_straight_in_its_logarithm_between_sizes_and_stays_beyond() -> None:
    sizes = (SizeFactor(workers=2, factor=1.0), SizeFactor(workers=4, factor=4.0))
    level = LossLevel(loss=1.0, updates=100, workers_exponent=0, batch_exponent=0, sizes=sizes)
    curve = BEYOND.model_copy(update={"levels": (level,)})
    assert [updates(curve, 1.0, size) for size in (1, 2, 3, 4, 9)] == pytest.approx(
        [100, 100, 200, 400, 400]
    )
