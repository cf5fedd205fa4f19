"""How many updates a loss takes, and what loss so many updates reach: spotDNN's equation (3) and its inverse.

    loss = (γ₂ · bw + γ₃) · √((R + γ₄) · N) / (j + γ₁) + γ₅                          (3)

Published coefficients fit it without R, as √N. A learned curve has exponents of its own instead of ½ and 1, and
levels: losses that were seen, with the updates j = A · N^a · bw^b · c(N) that each
took; c is what sizes took in addition to the power. As γ₂ may be negative, large batches make the numerator 0 and
less: there the form means nothing. Also what replays say of that, and which fleets to replay. Knows nothing of time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stash.core.errors import UserError
from stash.predict.draws import Array
from stash.spot.records.fleets import LossCurve, LossLevel, SizeFactor
from stash.spot.records.runs import LossReplay, VirtualWorker


def slope(curve: LossCurve, mean_batch: Array, imbalance: Array, workers: Array) -> Array:
    """(γ₂ · bw + γ₃) · √((R + γ₄) · N): loss · updates."""
    spread = workers if curve.gamma4 is None else (imbalance + curve.gamma4) * workers
    found: Array = (curve.gamma2 * mean_batch + curve.gamma3) * spread**curve.workers_exponent
    return found


def updates_to(curve: LossCurve, loss: float, mean_batch: Array, imbalance: Array, workers: Array) -> Array:
    """(12) with (3): j; within a curve's levels as they say. Infinite for a loss that is never reached, as γ₅ is
    left after any number of updates, and where the form says nothing: a slope that is not positive.
    """
    if curve.levels and loss >= curve.levels[-1].loss:
        levels, steps = curve.levels, np.log(_passed(curve.levels, mean_batch, workers))
        below = next(number for number, each in enumerate(levels) if each.loss <= loss)
        # Above all levels a loss was passed before it was watched and takes no more than the first; between two of
        # them the logarithm of updates is a straight line.
        high, low = levels[max(below - 1, 0)].loss, levels[below].loss
        share = (high - loss) / (high - low) if below else 1.0
        between = steps[..., max(below - 1, 0)] * (1 - share) + steps[..., below] * share
        return np.maximum(np.exp(between), 1.0)
    if loss <= curve.gamma5:
        return np.full(np.broadcast_shapes(np.shape(mean_batch), np.shape(imbalance), np.shape(workers)), np.inf)
    steep = slope(curve, mean_batch, imbalance, workers)
    ratio = np.maximum(steep, 0.0) / (loss - curve.gamma5)
    found = np.maximum(ratio ** (1 / curve.exponent) - curve.gamma1, 1.0)  # a fleet that is rented takes a step
    if curve.levels:  # what is below all of them takes no fewer than the last
        found = np.maximum(found, _passed(curve.levels, mean_batch, workers)[..., -1])
    return np.where(steep > 0, found, np.inf)


def _passed(levels: Sequence[LossLevel], mean_batch: Array, workers: Array) -> Array:
    """Updates to each level, ``[…, level]``: a lower loss never takes fewer.

    The logarithm of c(N) is a straight line between two sizes.
    """
    fleet, batch = np.broadcast_arrays(np.asarray(workers, float), np.asarray(mean_batch, float))
    found = []
    for level in levels:
        updates = level.updates * fleet**level.workers_exponent * batch**level.batch_exponent
        if level.sizes:
            logs = np.log([each.factor for each in level.sizes])
            updates = updates * np.exp(np.interp(fleet, [each.workers for each in level.sizes], logs))
        found.append(updates)
    falling_losses: Array = np.maximum.accumulate(np.stack(found, axis=-1), axis=-1)
    return falling_losses


# Courses: running means of the loss of replays

LEVELS = 16
"""Losses at which curves are judged, evenly spread in the logarithm of updates."""


def shape_of(replay: LossReplay) -> tuple[Array, Array, Array]:
    """bw, R, N."""
    return np.array(replay.mean_batch), np.array(replay.imbalance), np.array(float(len(replay.workers)))


def falling(replay: LossReplay) -> Array:
    """The least loss so far, after each of its updates."""
    least: Array = np.minimum.accumulate(np.array(replay.losses))
    return least


def passed(replay: LossReplay, losses: Array) -> Array:
    """Updates after which the course first was at each of these losses; not a number where it never was.

    Between two points of the course, by a straight line in the logarithm of updates.
    """
    steps, least = np.log(np.array(replay.updates, dtype=float)), falling(replay)
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
    mean = np.mean([np.interp(at, np.log(replay.updates), falling(replay)) for replay in replays], axis=0)
    inside = mean[(mean < highest) & (mean > lowest)]
    found: Array = np.unique(np.concatenate([[highest], inside, [lowest]]))[::-1]
    return found


# Levels: the updates to each loss by itself


def with_levels(beyond: LossCurve, replays: Sequence[LossReplay], losses: Array) -> LossCurve:
    """``beyond`` with the updates to each loss, fitted to the replays by least squares of their logarithms.

        ln j = ln A + a · ln N + b · ln bw + c(N)

    c is what replays of a size took in addition to the power law: what stale gradients cost may be nothing up to
    four, and twice the updates at eight. Between sizes ln c is a straight line in N, beyond them it stays. Where a
    loss is noisy c is noise as well, so ln c is shrunk by the share of its variance that noise is (empirical Bayes;
    Efron & Morris 1973), at each loss by its own.
    """
    sizes = np.array([len(each.workers) for each in replays])
    batches = np.log([each.mean_batch for each in replays])
    kinds = np.unique(sizes)
    seen = np.log(np.stack([passed(each, losses) for each in replays]))
    # Columns are centred, so that of replays of one size the exponent of sizes comes out as 0.
    size, batch, middle = np.log(sizes), batches - batches.mean(), np.log(sizes).mean()
    law, law_off, law_rank = _solved(np.stack([np.ones(len(sizes)), size - middle, batch], axis=1), seen)
    own, own_off, own_rank = _solved(np.column_stack([sizes[:, None] == kinds, batch]), seen)
    kept = kept_share(law_off, own_off, own_rank - law_rank, len(replays) - own_rank)
    mean, by_size, by_batch = law[0], law[1], law[2] * (1 - kept) + own[-1] * kept
    centred = kept * (own[:-1] - mean - np.outer(np.log(kinds) - middle, by_size))
    return beyond.model_copy(
        update={
            "levels": tuple(
                LossLevel(
                    loss=float(loss),
                    updates=float(np.exp(mean[at] - by_size[at] * middle - by_batch[at] * batches.mean())),
                    workers_exponent=float(by_size[at]),
                    batch_exponent=float(by_batch[at]),
                    sizes=tuple(
                        SizeFactor(workers=int(size), factor=float(np.exp(off)))
                        for size, off in zip(kinds, centred[:, at], strict=True)
                        if centred[:, at].any()
                    ),
                )
                for at, loss in enumerate(losses)
            )
        }
    )


def _solved(columns: Array, seen: Array) -> tuple[Array, Array, int]:
    """Coefficients of each loss, what is left of its squares, and the columns' rank."""
    solved = np.linalg.lstsq(columns, seen, rcond=None)
    found: Array = np.asarray(solved[0], dtype=float)
    left: Array = ((seen - columns @ found) ** 2).sum(axis=0)
    return found, left, int(solved[2])


def kept_share(law_off: Array, own_off: Array, more: int, left: int) -> Array:
    """Share of what sizes take in addition to the power law that is no noise: 1 − 1 / F, or 0.

    F is what each of ``more`` coefficients explains, over the noise that is left.
    """
    if more < 1 or left < 1:
        return np.zeros(len(law_off))
    explained, noise = np.maximum(law_off - own_off, 0.0) / more, own_off / left
    return np.where(explained > noise, 1 - noise / np.maximum(explained, 1e-300), 0.0)


# Fleets to replay

Fleet = tuple[VirtualWorker, ...]


def shapes(workers: Sequence[int], batches: Sequence[int]) -> tuple[Fleet, ...]:
    """Every number of workers with every batch, and of each number above 1 one whose first worker is as fast as all
    others together: R is √(1 − 1/N) of equal workers and about ½ of those.

    In turns, so that the first fleets differ in both: who runs out of time has seen sizes and batches that differ.
    """
    found = [
        alike(size, batches[(number + turn) % len(batches)])
        for turn in range(len(batches))
        for number, size in enumerate(workers)
    ]
    for number, size in enumerate(workers):
        if size > 1:
            batch = batches[number % len(batches)]
            slow = VirtualWorker(samples=batch, seconds=float(max(size - 1, 2)))
            found.append((VirtualWorker(samples=batch, seconds=1.0), *(slow,) * (size - 1)))
    return tuple(found)


def alike(size: int, batch: int) -> Fleet:
    """So many workers, equally fast."""
    return (VirtualWorker(samples=batch, seconds=1.0),) * size
