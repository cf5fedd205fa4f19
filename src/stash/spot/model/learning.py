"""Replays in, a loss curve out: each loss that all replays passed is fitted by itself, as a level of the curve.

What lies below all levels is a power law of updates and workers, fitted to whole courses. How wrong the curve
is comes from predicting each replay from all others; what is judged is what a plan asks for, updates to a loss.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import least_squares

from stash.core.errors import UserError
from stash.core.units import counted
from stash.predict.draws import Array
from stash.spot.model.convergence import (
    common_losses,
    falling,
    passed,
    shape_of,
    updates_to,
    with_levels,
)
from stash.spot.records.fleets import LossCurve
from stash.spot.records.runs import FittedLoss, LossReplay

MIN_SHAPES = 4
"""Of fleets: γ₂ and γ₃ need two mean batches, exponents two sizes, and one fleet is to be held out."""
_ONE_SIGMA = 0.682689
"""Share of a normal distribution within one standard deviation."""
_STEEPEST = 3.0
"""Of the exponent of updates: steeper is no power of them any more."""
_MIN_FALL = 0.1
"""Of a course's steepest fall: where it is flatter, a loss says so little of updates that it gets no more weight."""


def fit_curve(replays: Sequence[LossReplay]) -> FittedLoss:
    """The curve of all replays; raises UserError with too few fleets, or losses that do not fall."""
    shapes = {(len(each.workers), round(each.mean_batch, 6)) for each in replays}
    sizes, batches = ({shape[at] for shape in shapes} for at in (0, 1))
    if len(shapes) < MIN_SHAPES or len(sizes) < 2 or len(batches) < 2:
        raise UserError(
            f"{counted(len(shapes), 'kind')} of fleets cannot determine a loss curve: {MIN_SHAPES} that differ "
            "in workers and in mean batch are needed, like --fleet-sizes 1,2,4"
        )
    losses = common_losses(replays)
    rests = [[*replays[:number], *replays[number + 1 :]] for number in range(len(replays))]
    laws = [fit_power_law(rest) for rest in rests]
    curves = [with_levels(law, rest, losses) for law, rest in zip(laws, rests, strict=True)]
    logs = _errors(curves, replays, losses)
    off = np.where(np.isfinite(logs), np.abs(np.expm1(np.minimum(logs, 700.0))), 1.0)
    return FittedLoss(
        curve=with_levels(fit_power_law(replays), replays, losses),
        error=min(float(np.median(off)), 1e9),
        worst_error=min(float(np.quantile(off, 0.9)), 1e9),
        spread=_spread(logs),
        beyond_spread=_spread(_errors(laws, replays, losses)),
    )


def _errors(held_out: Sequence[LossCurve], replays: Sequence[LossReplay], losses: Array) -> Array:
    """ln(predicted / replayed) of the updates to each loss, by curves that have not seen it: [replay, loss]."""
    logs = []
    for without, replay in zip(held_out, replays, strict=True):
        updates = np.array([float(updates_to(without, float(loss), *shape_of(replay))) for loss in losses])
        logs.append(np.log(updates / passed(replay, losses)))
    return np.array(logs)


def _spread(logs: Array) -> float | None:
    spread = float(np.quantile(np.abs(logs), _ONE_SIGMA, method="higher"))
    return spread if np.isfinite(spread) else None


def fit_power_law(replays: Sequence[LossReplay]) -> LossCurve:
    """(γ₂ · bw + γ₃) · N^q / (j + γ₁)^p + γ₅ by least squares of losses, each replay weighing the same.

    A residual counts by the updates it is worth: it is divided by how fast the loss falls there, in ln j.
    """
    longest = float(max(replay.updates[-1] for replay in replays))
    batch = max(replay.mean_batch for replay in replays)
    low = min(float(min(replay.losses)) for replay in replays)
    high = max(float(max(replay.losses)) for replay in replays)
    updates = np.concatenate([np.array(each.updates, dtype=float) / longest for each in replays])
    seen = np.concatenate([np.array(each.losses) for each in replays])
    weights = np.concatenate([residual_weights(each) for each in replays])
    lengths = [len(each.updates) for each in replays]
    batches = np.repeat([each.mean_batch for each in replays], lengths)
    workers = np.repeat([float(len(each.workers)) for each in replays], lengths)

    def residuals(given: Array) -> Array:
        one, two, three, five, p, q = given
        predicted = (two * batches / batch + three) * workers**q / (updates + one) ** p + five
        off: Array = (predicted - seen) * weights
        return off

    start = np.array([0.1, 0.0, 0.1 * high, low / 2 if low > 0 else low, 1.0, 0.0])
    most_high = 1e3 * max(abs(high), abs(low), 1e-9)
    least = np.array([1e-9, -most_high, -most_high, -most_high, 0.1, -2.0])
    most = np.array([10.0, most_high, most_high, most_high, _STEEPEST, 2.0])
    best = least_squares(residuals, start, bounds=(least, most), x_scale="jac", max_nfev=200)
    one, two, three, five, p, q = (float(value) for value in best.x)
    return LossCurve(
        gamma1=one * longest,
        gamma2=two * longest**p / batch,
        gamma3=three * longest**p,
        gamma5=five,
        exponent=p,
        workers_exponent=q,
    )


def residual_weights(replay: LossReplay) -> Array:
    """One over the fall of the loss per ln j, as a quartic through the course has it; less than a tenth of its
    steepest counts as a tenth."""
    steps = np.log(np.array(replay.updates, dtype=float))
    centred = (steps - steps.mean()) / max(float(steps.std()), 1e-12)
    falls = np.abs(np.polyval(np.polyder(np.polyfit(centred, falling(replay), min(4, len(steps) - 1))), centred))
    steepest = float(falls.max())
    if steepest <= 0:
        alike: Array = np.full(len(steps), 1 / np.sqrt(len(steps)))
        return alike
    found: Array = 1 / np.maximum(falls, _MIN_FALL * steepest) / np.sqrt(len(steps))
    return found
