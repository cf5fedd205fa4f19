"""How many updates a loss takes: spotDNN's equation (3), and the curve that is fitted to replays.

    loss = (γ₂ · bw + γ₃) · √N / (j + γ₁) + γ₅                                       (3)

The paper has √((R + γ₄) · N); its coefficients fit √N. A learned curve has exponents of its own instead of ½ and 1, and
levels: losses that all replays passed, each fitted by itself, with the updates j = A · N^a · bw^b that it took. What
lies below all levels is a power law of updates and workers, fitted to whole courses. As γ₂ may be negative, large
batches make the numerator 0 and less: there the form means nothing. How wrong the curve is comes from predicting each
replay from all others, in updates to a loss. Also which fleets to replay. Knows nothing of time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stash.api import Array
from stash.core.errors import UserError
from stash.core.imports import require_package
from stash.core.units import format_count
from stash.spot.fleet_records import LossCurve, LossLevel
from stash.spot.run_records import FittedLoss, LossReplay, VirtualWorker

MIN_SHAPES = 4
"""Of fleets: γ₂ and γ₃ need two mean batches, exponents two sizes, and one fleet is to be held out."""
_ONE_SIGMA = 0.682689
"""Share of a normal distribution within one standard deviation."""
_STEEPEST = 3.0
"""Of the exponent of updates: steeper is no power of them any more."""
_MIN_FALL = 0.1
"""Of a course's steepest fall: where it is flatter, a loss says so little of updates that it gets no more weight."""


def updates_to(curve: LossCurve, loss: float, mean_batch: Array, workers: Array) -> Array:
    """(12) with (3): j; within a curve's levels as they say. Infinite for a loss that is never reached, as γ₅ is
    left after any number of updates, and where the form says nothing: a slope that is not positive.
    """
    if curve.levels and loss >= curve.levels[-1].loss:
        levels, steps = curve.levels, np.log(_updates_to_levels(curve.levels, mean_batch, workers))
        below = next(number for number, each in enumerate(levels) if each.loss <= loss)
        # Above all levels a loss was passed before it was watched and takes no more than the first; between two of
        # them the logarithm of updates is a straight line.
        high = levels[max(below - 1, 0)].loss
        low = levels[below].loss
        share = (high - loss) / (high - low) if below else 1.0
        between = steps[..., max(below - 1, 0)] * (1 - share) + steps[..., below] * share
        return np.maximum(np.exp(between), 1.0)
    if loss <= curve.gamma5:
        return np.full(np.shape(mean_batch), np.inf)
    steep = (curve.gamma2 * mean_batch + curve.gamma3) * workers**curve.workers_exponent
    ratio = np.maximum(steep, 0.0) / (loss - curve.gamma5)
    # a fleet that is rented takes a step
    found = np.maximum(ratio ** (1 / curve.exponent) - curve.gamma1, 1.0)
    if curve.levels:  # what is below all of them takes no fewer than the last
        found = np.maximum(found, _updates_to_levels(curve.levels, mean_batch, workers)[..., -1])
    return np.where(steep > 0, found, np.inf)


def _updates_to_levels(levels: Sequence[LossLevel], mean_batch: Array, workers: Array) -> Array:
    """Updates to each level, ``[…, level]``: a lower loss never takes fewer."""
    found = [
        level.updates * workers**level.workers_exponent * mean_batch**level.batch_exponent
        for level in levels
    ]
    falling_losses: Array = np.maximum.accumulate(np.stack(found, axis=-1), axis=-1)
    return falling_losses


# Courses: running means of the loss of replays

LEVELS = 16
"""Losses at which curves are judged, evenly spread in the logarithm of updates."""


def shape_of(replay: LossReplay) -> tuple[Array, Array]:
    """bw, N."""
    return np.array(replay.mean_batch), np.array(float(len(replay.workers)))


def falling(replay: LossReplay) -> Array:
    """The least loss so far, after each of its updates."""
    least: Array = np.minimum.accumulate(np.array(replay.losses))
    return least


def updates_to_losses(replay: LossReplay, losses: Array) -> Array:
    """Updates after which the course first was at each of these losses; not a number where it never was.

    Between two points of the course, by a straight line in the logarithm of updates.
    """
    steps = np.log(np.array(replay.updates, dtype=float))
    least = falling(replay)
    after = np.searchsorted(-least, -losses, side="left")
    found = np.full(len(losses), np.nan)
    for number, (loss, at) in enumerate(zip(losses, after, strict=True)):
        if at == 0:
            found[number] = steps[0]
        elif at < len(least):
            share = (least[at - 1] - loss) / (least[at - 1] - least[at])
            found[number] = steps[at - 1] * (1 - share) + steps[at] * share
    updates: Array = np.exp(found)
    return updates


def common_losses(replays: Sequence[LossReplay]) -> Array:
    """Losses that every replay passed after its first point, the highest first; raises UserError without any."""
    highest = min(replay.losses[0] for replay in replays)
    lowest = max(float(falling(replay)[-1]) for replay in replays)
    if not lowest < highest:
        raise UserError(
            f"the losses of these replays have nothing in common: one begins at {highest:.4g}, another ends at "
            f"{lowest:.4g}; replay more updates (--updates, or a longer --budget)"
        )
    start = max(replay.updates[0] for replay in replays)
    end = min(replay.updates[-1] for replay in replays)
    at = np.linspace(np.log(start), np.log(end), LEVELS)
    mean = np.mean(
        [np.interp(at, np.log(replay.updates), falling(replay)) for replay in replays], axis=0
    )
    inside = mean[(mean < highest) & (mean > lowest)]
    found: Array = np.unique(np.concatenate([[highest], inside, [lowest]]))[::-1]
    return found


# Levels: the updates to each loss by itself


def add_levels(beyond: LossCurve, replays: Sequence[LossReplay], losses: Array) -> LossCurve:
    """``beyond`` with the updates to each loss, ln j = ln A + a · ln N + b · ln bw, by least squares."""
    sizes = np.log([len(each.workers) for each in replays])
    batches = np.log([each.mean_batch for each in replays])
    seen = np.log(np.stack([updates_to_losses(each, losses) for each in replays]))
    # Columns are centred, so that of replays of one size the exponent of sizes comes out as 0.
    columns = np.stack(
        [np.ones(len(sizes)), sizes - sizes.mean(), batches - batches.mean()], axis=1
    )
    mean, by_size, by_batch = np.linalg.lstsq(columns, seen, rcond=None)[0]
    updates = np.exp(mean - by_size * sizes.mean() - by_batch * batches.mean())
    found = tuple(
        LossLevel(
            loss=float(loss),
            updates=float(updates[at]),
            workers_exponent=float(by_size[at]),
            batch_exponent=float(by_batch[at]),
        )
        for at, loss in enumerate(losses)
    )
    return beyond.model_copy(update={"levels": found})


# How wrong a curve is


def fit_curve(replays: Sequence[LossReplay]) -> FittedLoss:
    """The curve of all replays; raises UserError with too few fleets, or losses that do not fall."""
    shapes = {(len(each.workers), round(each.mean_batch, 6)) for each in replays}
    sizes, batches = ({shape[at] for shape in shapes} for at in (0, 1))
    if len(shapes) < MIN_SHAPES or len(sizes) < 2 or len(batches) < 2:
        raise UserError(
            f"{format_count(len(shapes), 'kind')} of fleets cannot determine a loss curve: {MIN_SHAPES} that differ "
            "in workers and in mean batch are needed, like --fleet-sizes 1,2,4"
        )
    losses = common_losses(replays)
    rests = [[*replays[:number], *replays[number + 1 :]] for number in range(len(replays))]
    laws = [fit_power_law(rest) for rest in rests]
    curves = [add_levels(law, rest, losses) for law, rest in zip(laws, rests, strict=True)]
    logs = _errors(curves, replays, losses)
    off = np.where(np.isfinite(logs), np.abs(np.expm1(np.minimum(logs, 700.0))), 1.0)
    return FittedLoss(
        curve=add_levels(fit_power_law(replays), replays, losses),
        error=min(float(np.median(off)), 1e9),
        worst_error=min(float(np.quantile(off, 0.9)), 1e9),
        spread=_spread(logs),
        beyond_spread=_spread(_errors(laws, replays, losses)),
    )


def _errors(held_out: Sequence[LossCurve], replays: Sequence[LossReplay], losses: Array) -> Array:
    """ln(predicted / replayed) of the updates to each loss, by curves that have not seen it: [replay, loss]."""
    logs = []
    for without, replay in zip(held_out, replays, strict=True):
        updates = np.array(
            [float(updates_to(without, float(loss), *shape_of(replay))) for loss in losses]
        )
        logs.append(np.log(updates / updates_to_losses(replay, losses)))
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
    least_squares = require_package("scipy.optimize", "fitting a loss curve").least_squares
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
    falls = np.abs(
        np.polyval(
            np.polyder(np.polyfit(centred, falling(replay), min(4, len(steps) - 1))), centred
        )
    )
    steepest = float(falls.max())
    if steepest <= 0:
        alike: Array = np.full(len(steps), 1 / np.sqrt(len(steps)))
        return alike
    found: Array = 1 / np.maximum(falls, _MIN_FALL * steepest) / np.sqrt(len(steps))
    return found


# Fleets to replay

Fleet = tuple[VirtualWorker, ...]


def list_fleets(workers: Sequence[int], batches: Sequence[int]) -> tuple[Fleet, ...]:
    """Every number of workers with every batch, and of each number above 1 one whose first worker is as fast as all
    others together: R is √(1 − 1/N) of equal workers and about ½ of those.

    In turns, so that the first fleets differ in both: who runs out of time has seen sizes and batches that differ.
    """
    found = [
        equal_fleet(size, batches[(number + turn) % len(batches)])
        for turn in range(len(batches))
        for number, size in enumerate(workers)
    ]
    for number, size in enumerate(workers):
        if size > 1:
            batch = batches[number % len(batches)]
            slow = VirtualWorker(samples=batch, seconds=float(max(size - 1, 2)))
            found.append((VirtualWorker(samples=batch, seconds=1.0), *(slow,) * (size - 1)))
    return tuple(found)


def equal_fleet(size: int, batch: int) -> Fleet:
    """So many workers, equally fast."""
    return (VirtualWorker(samples=batch, seconds=1.0),) * size
