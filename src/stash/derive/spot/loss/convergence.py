"""How many updates a loss takes, and what loss so many updates reach: spotDNN's equation (3) and its inverse.

    loss = (γ₂ · bw + γ₃) · √((R + γ₄) · N) / (j + γ₁) + γ₅                          (3)

The coefficients that were shipped fit it without R, as √N: both forms are kept. A curve may have exponents of its
own instead of ½ and 1, and levels: losses that were seen, with the updates j = A · N^a · bw^b · c(N) that each took;
c is what sizes took beside the power. Knows nothing of time. As γ₂ may be negative, large batches make the numerator
0 and less: there the form means nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stash.base.spot.fleets import LossCurve, LossLevel
from stash.derive.predict.uncertainty.draws import Array

_SAME = 1e-9
"""Of logarithms: two ways to the same number of updates."""


def slope(curve: LossCurve, mean_batch: Array, imbalance: Array, workers: Array) -> Array:
    """(γ₂ · bw + γ₃) · √((R + γ₄) · N): loss · updates."""
    spread = workers if curve.gamma4 is None else (imbalance + curve.gamma4) * workers
    found: Array = (curve.gamma2 * mean_batch + curve.gamma3) * spread**curve.workers_exponent
    return found


def loss_after(curve: LossCurve, updates: Array, mean_batch: Array, imbalance: Array, workers: Array) -> Array:
    """(3): the loss after so many updates; within a curve's levels as they say."""
    said = slope(curve, mean_batch, imbalance, workers) / (updates + curve.gamma1) ** curve.exponent + curve.gamma5
    if not curve.levels:
        return said
    passed = _passed(curve.levels, mean_batch, workers)
    losses = np.array([each.loss for each in curve.levels])
    shape = np.broadcast_shapes(np.shape(updates), passed.shape[:-1])
    many, steps = np.broadcast_to(updates, shape), np.broadcast_to(np.log(passed), (*shape, len(losses)))
    flat = [
        np.interp(np.log(j), row, losses) for j, row in zip(many.ravel(), steps.reshape(-1, len(losses)), strict=True)
    ]
    within: Array = np.array(flat).reshape(shape)
    return np.where(np.log(many) <= steps[..., -1] + _SAME, within, np.minimum(said, losses[-1]))


def updates_to(curve: LossCurve, loss: float, mean_batch: Array, imbalance: Array, workers: Array) -> Array:
    """(12) with (3): j; within a curve's levels as they say. Infinite for a loss that is never reached, as γ₅ is
    left after any number of updates, and where the form says nothing: a slope that is not positive.
    """
    if curve.levels and loss >= curve.levels[-1].loss:
        return np.maximum(_between(curve.levels, loss, mean_batch, workers), 1.0)
    if loss <= curve.gamma5:
        return np.full(np.broadcast_shapes(np.shape(mean_batch), np.shape(imbalance), np.shape(workers)), np.inf)
    steep = slope(curve, mean_batch, imbalance, workers)
    ratio = np.maximum(steep, 0.0) / (loss - curve.gamma5)
    found = np.maximum(ratio ** (1 / curve.exponent) - curve.gamma1, 1.0)  # a fleet that is rented takes a step
    if curve.levels:  # what is below all of them takes no fewer than the last
        found = np.maximum(found, _passed(curve.levels, mean_batch, workers)[..., -1])
    return np.where(steep > 0, found, np.inf)


# Levels ---------------------------------------------------------------------------------------------------


def _passed(levels: Sequence[LossLevel], mean_batch: Array, workers: Array) -> Array:
    """Updates to each level, ``[…, level]``: a lower loss never takes fewer."""
    fleet, batch = np.broadcast_arrays(np.asarray(workers, float), np.asarray(mean_batch, float))
    each = [
        level.updates * fleet**level.workers_exponent * batch**level.batch_exponent * _factor(level, fleet)
        for level in levels
    ]
    found: Array = np.maximum.accumulate(np.stack(each, axis=-1), axis=-1)
    return found


def _factor(level: LossLevel, workers: Array) -> Array:
    """c(N): its logarithm is a straight line between two sizes."""
    if not level.sizes:
        return np.ones_like(workers)
    logs = np.log([each.factor for each in level.sizes])
    found: Array = np.exp(np.interp(workers, [each.workers for each in level.sizes], logs))
    return found


def _between(levels: Sequence[LossLevel], loss: float, mean_batch: Array, workers: Array) -> Array:
    """Updates to a loss between two levels, by a straight line in the logarithm of updates.

    A loss above all levels was passed before anybody looked: it takes no more than the first.
    """
    steps = np.log(_passed(levels, mean_batch, workers))
    below = next(number for number, each in enumerate(levels) if each.loss <= loss)
    if below == 0:
        return np.exp(steps[..., 0])
    high, low = levels[below - 1].loss, levels[below].loss
    share = (high - loss) / (high - low)
    found: Array = np.exp(steps[..., below - 1] * (1 - share) + steps[..., below] * share)
    return found
