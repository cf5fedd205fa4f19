"""Loss by loss: sizes go off the power law as far as replays tell, and each loss has a spread of its own."""

from __future__ import annotations

import math

import numpy as np
import pytest
from loss_courses import course
from pydantic import ValidationError

from stash.spot.model.convergence import common_losses, kept_share, updates_to, with_levels
from stash.spot.records.fleets import LossCurve, LossLevel, SizeFactor
from stash.spot.records.runs import LossReplay

BEYOND = LossCurve(gamma1=10, gamma2=0, gamma3=100, gamma5=0.1)
FLEETS = tuple((size, batch, math.sqrt(1 - 1 / size)) for size in (1, 2, 4, 8) for batch in (32.0, 64.0, 128.0))
"""N, bw, R."""


def stale(j: np.ndarray, batch: float, imbalance: float, workers: float) -> np.ndarray:
    """Up to four workers cost nothing, eight take three times the updates: no power of N."""
    times = float(np.interp(workers, [1, 4, 8], [1.0, 1.0, 3.0]))
    return np.exp(-np.log(j / times) / 4)


def fleets(noise: float = 0.0) -> list[LossReplay]:
    return [course(*fleet, stale, noise=noise) for fleet in FLEETS]


def updates(curve: LossCurve, loss: float, size: float) -> float:
    return float(updates_to(curve, loss, np.array(64.0), np.array(0.9), np.array(size)))


def test_a_size_that_no_power_tells_is_told_as_it_was_replayed() -> None:
    replays = fleets()
    losses = common_losses(replays)
    curve = with_levels(BEYOND, replays, losses)
    loss = float(losses[len(losses) // 2])
    taken = {size: updates(curve, loss, size) / updates(curve, loss, 1) for size in (2, 4, 6, 8)}
    assert taken[2] == pytest.approx(1.0, abs=0.01)
    assert taken[4] == pytest.approx(1.0, abs=0.01)
    assert taken[8] == pytest.approx(3.0, rel=0.01)
    assert 1.4 < taken[6] < 2.2  # 2 by a straight line of updates


def test_a_power_of_workers_stays_one_without_factors() -> None:
    def power(j: np.ndarray, batch: float, imbalance: float, workers: float) -> np.ndarray:
        return np.exp(-np.log(j / workers**0.5) / 4)

    replays = [course(*fleet, power) for fleet in FLEETS]
    curve = with_levels(BEYOND, replays, common_losses(replays))
    loss = curve.levels[5].loss
    assert updates(curve, loss, 6) / updates(curve, loss, 1) == pytest.approx(math.sqrt(6), rel=1e-3)
    assert updates(curve, loss, 32) / updates(curve, loss, 1) == pytest.approx(math.sqrt(32), rel=1e-2)


def test_what_sizes_take_counts_by_how_much_more_than_noise_it_is() -> None:
    # Two more coefficients explain 4, 40 and 1 of squares, where 10 replays leave 10: F is 2, 20 and ½.
    left = np.array([10.0, 10.0, 10.0])
    assert kept_share(left + np.array([4.0, 40.0, 1.0]), left, 2, 10) == pytest.approx([0.5, 0.95, 0.0])
    assert (kept_share(left, left, 0, 10) == 0).all()
    assert (kept_share(left, left, 2, 0) == 0).all()
    assert kept_share(np.ones(1), np.zeros(1), 2, 10) == pytest.approx([1.0])


def test_a_factor_is_straight_in_its_logarithm_between_sizes_and_stays_beyond() -> None:
    sizes = (SizeFactor(workers=2, factor=1.0), SizeFactor(workers=4, factor=4.0))
    level = LossLevel(loss=1.0, updates=100, workers_exponent=0, batch_exponent=0, sizes=sizes)
    curve = BEYOND.model_copy(update={"levels": (level,)})
    assert [updates(curve, 1.0, size) for size in (1, 2, 3, 4, 9)] == pytest.approx([100, 100, 200, 400, 400])


def test_sizes_that_do_not_grow_are_refused() -> None:
    sizes = [{"workers": 4, "factor": 1.0}, {"workers": 2, "factor": 1.0}]
    with pytest.raises(ValidationError, match="sizes: their workers do not grow"):
        LossLevel.model_validate(
            {"loss": 1, "updates": 1, "workers_exponent": 0, "batch_exponent": 0, "sizes": sizes}
        )
