"""How many updates a loss takes: spotDNN's equation (3), its inverse, and its fit to convergence runs.

    loss = (γ₂ · bw + γ₃) · √((R + γ₄) · N) / (j + γ₁) + γ₅                          (3)

The coefficients that were shipped fit it without R, as √N: both forms are kept, and held-out error chooses. Knows
nothing of time. As γ₂ is negative, large batches make the numerator 0 and less: there the form means nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from stash.base.errors import UserError
from stash.base.spot.fleets import LossCurve
from stash.base.words.counting import counted
from stash.derive.predict.draws import Array

_LEAST_SHAPES = 3
"""Of fleets: γ₂ and γ₃ need two mean batches, and one is to be held out."""


@dataclass(frozen=True)
class LossRun:
    """Losses that one fleet's training passed, after so many updates."""

    workers: int
    mean_batch: float
    imbalance: float
    updates: Array
    losses: Array


def slope(curve: LossCurve, mean_batch: Array, imbalance: Array, workers: Array) -> Array:
    """(γ₂ · bw + γ₃) · √((R + γ₄) · N): loss · updates."""
    spread = workers if curve.gamma4 is None else (imbalance + curve.gamma4) * workers
    found: Array = (curve.gamma2 * mean_batch + curve.gamma3) * np.sqrt(spread)
    return found


def loss_after(curve: LossCurve, updates: Array, mean_batch: Array, imbalance: Array, workers: Array) -> Array:
    """(3): the loss after so many updates."""
    return slope(curve, mean_batch, imbalance, workers) / (updates + curve.gamma1) + curve.gamma5


def updates_to(curve: LossCurve, loss: float, mean_batch: Array, imbalance: Array, workers: Array) -> Array:
    """(12) with (3): j. Infinite where the form says nothing: a slope that is not positive. Raises UserError."""
    if loss <= curve.gamma5:
        raise UserError(
            f"--loss {loss:g} is never reached: {curve.gamma5:g} (gamma5 of the curve) is left after any number of "
            f"updates; ask for more than {curve.gamma5:g}"
        )
    steep = slope(curve, mean_batch, imbalance, workers)
    found = np.maximum(steep / (loss - curve.gamma5) - curve.gamma1, 1.0)  # a fleet that is rented takes a step
    return np.where(steep > 0, found, np.inf)


@dataclass(frozen=True)
class FittedCurve:
    """A curve, how wrong it was on runs it had not seen, and the other form beside it."""

    curve: LossCurve
    error: float
    """Median of |predicted / observed − 1| of losses, each run predicted from all others."""
    other_error: float
    exponent: float
    """p where losses fall with (j + γ₁)ᵖ instead, fitted freely: far from 1, equation (3) is the wrong form."""


def fit(runs: tuple[LossRun, ...] | list[LossRun]) -> FittedCurve:
    """The form of (3) that predicts held-out runs better; raises UserError with too few fleets to tell.

    Least squares of losses, each run weighing the same.
    """
    shapes = {(run.workers, round(run.mean_batch, 6)) for run in runs}
    if len(shapes) < _LEAST_SHAPES:
        raise UserError(
            f"{counted(len(shapes), 'shape')} of fleets cannot determine gamma1 to gamma5; give runs of "
            f"{_LEAST_SHAPES} or more that differ in workers and mean batch"
        )
    errors = {with_r: _held_out(runs, with_r) for with_r in (False, True)}
    with_r = errors[True] < errors[False]
    solution = _solve(runs, with_r)
    free = _solve(runs, with_r, free=True)
    return FittedCurve(_curve(solution, with_r), errors[with_r], errors[not with_r], float(free[5]))


def _held_out(runs: tuple[LossRun, ...] | list[LossRun], with_r: bool) -> float:
    errors: list[float] = []
    for number, run in enumerate(runs):
        curve = _curve(_solve([*runs[:number], *runs[number + 1 :]], with_r), with_r)
        said = loss_after(curve, run.updates, *_shape(run))
        errors.extend(np.abs(said / run.losses - 1))
    return float(np.median(errors))


def _shape(run: LossRun) -> tuple[Array, Array, Array]:
    return np.array(run.mean_batch), np.array(run.imbalance), np.array(float(run.workers))


def _solve(runs: tuple[LossRun, ...] | list[LossRun], with_r: bool, free: bool = False) -> Array:
    """γ₁ … γ₅ and the exponent of j, the last 1 unless ``free`` and γ₄ 1 unless ``with_r``."""
    longest = max(float(run.updates.max()) for run in runs)
    least = min(float(run.losses.min()) for run in runs)
    most = max(float(run.losses.max()) for run in runs)
    batch = max(run.mean_batch for run in runs)
    scale = np.array([longest, most * longest / batch, most * longest, 1.0, max(least, 1e-12), 1.0])
    start = np.array([0.1, 0.0, 0.1, 1.0, 0.5, 1.0])
    used = [0, 1, 2, *([3] if with_r else []), 4, *([5] if free else [])]
    low = np.array([1e-9, -np.inf, -np.inf, 1e-6, -np.inf, 0.1])[used]

    def completed(given: Array) -> Array:
        full = start.copy()
        full[used] = given
        scaled: Array = full * scale
        return scaled

    def residuals(given: Array) -> Array:
        values = completed(given)
        parts = []
        for run in runs:
            spread = (run.imbalance + values[3] if with_r else 1.0) * run.workers
            steep = (values[1] * run.mean_batch + values[2]) * np.sqrt(spread)
            fallen = ((run.updates + values[0]) / longest) ** values[5] * longest
            parts.append((steep / fallen + values[4] - run.losses) / np.sqrt(len(run.losses)))
        return np.concatenate(parts)

    best = least_squares(residuals, start[used], bounds=(low, np.inf), x_scale="jac", max_nfev=200)
    return completed(best.x)


def _curve(values: Array, with_r: bool) -> LossCurve:
    one, two, three, four, five, _ = (float(value) for value in values)
    return LossCurve(gamma1=one, gamma2=two, gamma3=three, gamma4=four if with_r else None, gamma5=five)
