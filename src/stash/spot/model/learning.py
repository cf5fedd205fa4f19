"""Replays in, a loss curve out: every form is fitted, and each replay predicted from all others by each.

*Printed* and *shipped* are equation (3) with R and without; *free* has exponents of its own for updates and workers;
*levels* have none of its shape: each loss that all replays passed is fitted by itself. What is judged is what a plan
asks for, updates to a loss. Intervals are a jackknife's, over replayed fleets.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import least_squares
from scipy.special import stdtrit

from stash.core.errors import UserError
from stash.core.intervals import Interval
from stash.core.units import counted
from stash.predict.draws import Array
from stash.spot.model.convergence import (
    common_losses,
    falling,
    loss_after,
    passed,
    shape_of,
    spreads,
    updates_to,
    with_levels,
)
from stash.spot.records.fleets import LossCurve
from stash.spot.records.runs import FittedLoss, LossForm, LossReplay

MIN_SHAPES = 4
"""Of fleets: γ₂ and γ₃ need two mean batches, exponents two sizes, and one fleet is to be held out."""
_NAMES = ("gamma1", "gamma2", "gamma3", "gamma4", "gamma5", "exponent", "workers_exponent")
_FREED: dict[LossForm, tuple[int, ...]] = {
    "printed": (0, 1, 2, 3, 4),
    "shipped": (0, 1, 2, 4),
    "free": (0, 1, 2, 4, 5, 6),
}
_STANDS = 1e-3
"""Relative: what moves less than that with every fleet that is left out, does not move."""
_PLAINEST: tuple[LossForm, ...] = ("shipped", "printed", "free", "levels")
_DIGITS = 3
"""Of an error, that count: a thousandth decides nothing."""
_ONE_SIGMA = 0.682689
"""Share of a normal distribution within one standard deviation."""
_STEEPEST = 3.0
"""Of the exponent of updates: steeper is no power of them any more."""
_MIN_FALL = 0.1
"""Of a course's steepest fall: where it is flatter, a loss says so little of updates that it gets no more weight."""


def fitted_forms(replays: Sequence[LossReplay]) -> tuple[FittedLoss, ...]:
    """All forms, the one that errs least first; raises UserError with too few fleets, or losses that do not fall."""
    shapes = {(len(each.workers), round(each.mean_batch, 6)) for each in replays}
    sizes, batches = ({shape[at] for shape in shapes} for at in (0, 1))
    if len(shapes) < MIN_SHAPES or len(sizes) < 2 or len(batches) < 2:
        raise UserError(
            f"{counted(len(shapes), 'kind')} of fleets cannot determine gamma1 to gamma5: {MIN_SHAPES} that differ "
            "in workers and in mean batch are needed, like --fleet-sizes 1,2,4 --batches 32,64"
        )
    losses = common_losses(replays)
    rests = [[*replays[:number], *replays[number + 1 :]] for number in range(len(replays))]
    forms = []
    for form in _FREED:
        whole, others = _solve(form, replays), [_solve(form, rest) for rest in rests]
        intervals = _jackknife(form, whole, np.array(others))
        held_out = [_curve(form, other) for other in others]
        forms.append(_judged(form, _curve(form, whole), held_out, replays, losses, intervals))
    beyond = min(forms, key=_rank).curve
    held_out = [with_levels(beyond, rest, losses) for rest in rests]
    forms.append(_judged("levels", with_levels(beyond, replays, losses), held_out, replays, losses, {}))
    return tuple(sorted(forms, key=_rank))


def _rank(fitted: FittedLoss) -> tuple[float, int]:
    """Of forms that err alike, the one with the fewest coefficients comes first."""
    return round(fitted.error, _DIGITS), _PLAINEST.index(fitted.form)


def _judged(
    form: LossForm,
    curve: LossCurve,
    held_out: Sequence[LossCurve],
    replays: Sequence[LossReplay],
    losses: Array,
    intervals: dict[str, Interval],
) -> FittedLoss:
    """A form with how far off it is of each of ``replays`` when fitted without it, as in ``held_out``."""
    of_losses: list[float] = []
    of_updates: list[Array] = []
    for without, replay in zip(held_out, replays, strict=True):
        shape, seen = shape_of(replay), np.array(replay.losses)
        predicted = loss_after(without, np.array(replay.updates, dtype=float), *shape)
        of_losses.extend(np.abs(predicted[seen != 0] / seen[seen != 0] - 1))
        updates = np.array([float(updates_to(without, float(loss), *shape)) for loss in losses])
        of_updates.append(np.log(updates / passed(replay, losses)))
    logs = np.array(of_updates)
    off = np.where(np.isfinite(logs), np.abs(np.expm1(np.minimum(logs, 700.0))), 1.0)
    spread = float(np.quantile(np.abs(logs), _ONE_SIGMA, method="higher"))
    return FittedLoss(
        form=form,
        curve=curve,
        intervals=intervals,
        loss_error=min(float(np.median(of_losses)), 1e9),
        error=min(float(np.median(off)), 1e9),
        worst_error=min(float(np.quantile(off, 0.9)), 1e9),
        spread=spread if np.isfinite(spread) else None,
        spreads=spreads(losses, logs),
    )


def _jackknife(form: LossForm, whole: Array, others: Array) -> dict[str, Interval]:
    """Of each coefficient, from what it is without each fleet (Tukey 1958): √((n − 1)/n · Σ (θᵢ − θ̄)²)."""
    count = len(others)
    arms = stdtrit(count - 1, 0.975) * np.sqrt(
        (count - 1) / count * ((others - others.mean(axis=0)) ** 2).sum(axis=0)
    )
    return {
        _NAMES[at]: Interval(value=whole[at], low=whole[at] - arms[at], high=whole[at] + arms[at], repetitions=count)
        # One that stands at an end of what it may be does not move, whatever is left out: that is no certainty.
        if arms[at] > _STANDS * abs(whole[at])
        else Interval(value=whole[at])
        for at in _FREED[form]
    }


def _solve(form: LossForm, replays: Sequence[LossReplay]) -> Array:
    """γ₁ … γ₅ and both exponents. Least squares of losses, each replay weighing the same.

    A residual counts by the updates it is worth: it is divided by how fast the loss falls there, in ln j.
    """
    longest = float(max(replay.updates[-1] for replay in replays))
    batch = max(replay.mean_batch for replay in replays)
    low = min(float(min(replay.losses)) for replay in replays)
    high = max(float(max(replay.losses)) for replay in replays)
    updates = np.concatenate([np.array(each.updates, dtype=float) / longest for each in replays])
    seen = np.concatenate([np.array(each.losses) for each in replays])
    weights = np.concatenate([_weights(each) for each in replays])
    batches, imbalance, workers = (
        np.repeat([float(shape_of(each)[at]) for each in replays], [len(each.updates) for each in replays])
        for at in range(3)
    )
    used = list(_FREED[form])
    start = np.array([0.1, 0.0, 0.1 * high, 1.0, low / 2 if low > 0 else low, 1.0, 0.0 if form == "free" else 0.5])
    most_high = 1e3 * max(abs(high), abs(low), 1e-9)
    least = np.array([1e-9, -most_high, -most_high, 1e-6, -most_high, 0.1, -2.0])[used]
    most = np.array([10.0, most_high, most_high, 1e3, most_high, _STEEPEST, 2.0])[used]

    def completed(given: Array) -> Array:
        full: Array = start.copy()
        full[used] = given
        return full

    def residuals(given: Array) -> Array:
        one, two, three, four, five, p, q = completed(given)
        spread = (imbalance + four if form == "printed" else 1.0) * workers
        predicted = (two * batches / batch + three) * spread**q / (updates + one) ** p + five
        off: Array = (predicted - seen) * weights
        return off

    best = least_squares(residuals, start[used], bounds=(least, most), x_scale="jac", max_nfev=200)
    one, two, three, four, five, p, q = completed(best.x)
    found: Array = np.array([one * longest, two * longest**p / batch, three * longest**p, four, five, p, q])
    return found


def _weights(replay: LossReplay) -> Array:
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


def _curve(form: LossForm, values: Array) -> LossCurve:
    one, two, three, four, five, p, q = (float(value) for value in values)
    gamma4 = four if form == "printed" else None
    return LossCurve(gamma1=one, gamma2=two, gamma3=three, gamma4=gamma4, gamma5=five, exponent=p, workers_exponent=q)
