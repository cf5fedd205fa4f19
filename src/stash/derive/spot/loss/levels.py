"""Loss by loss: the updates that each takes, by workers and mean batch, and how far off those were of unseen fleets.

    ln j = ln A + a · ln N + b · ln bw + c(N)

c is what replays of a size took beside the power law: what stale gradients cost may be nothing up to four, and twice
the updates at eight. Between sizes ln c is a straight line in N, beyond them it stays. Where a loss is noisy
c is noise as well, so ln c is shrunk by the share of its variance that noise is (empirical Bayes; Efron & Morris
1973), at each loss by its own. Knows no other form of a curve.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stash.base.spot.curve import FittedLoss, LossReplay, LossSpread
from stash.base.spot.fleets import LossCurve, LossLevel, SizeFactor
from stash.derive.predict.uncertainty.draws import Array
from stash.derive.spot.loss.courses import passed

_AROUND = 1
"""Levels on either side that a level's spread is of too: a few replays alone say little of it."""


def with_levels(beyond: LossCurve, replays: Sequence[LossReplay], losses: Array) -> LossCurve:
    """``beyond`` with the updates to each loss, fitted to the replays by least squares of their logarithms."""
    sizes = np.array([len(each.workers) for each in replays])
    batches = np.log([each.mean_batch for each in replays])
    kinds = np.unique(sizes)
    seen = np.log(np.stack([passed(each, losses) for each in replays]))
    # Columns are centred, so that of replays of one size the exponent of sizes comes out as 0.
    size, batch, middle = np.log(sizes), batches - batches.mean(), np.log(sizes).mean()
    law, law_off, law_rank = _solved(np.stack([np.ones(len(sizes)), size - middle, batch], axis=1), seen)
    own, own_off, own_rank = _solved(np.column_stack([sizes[:, None] == kinds, batch]), seen)
    kept = _kept(law_off, own_off, own_rank - law_rank, len(replays) - own_rank)
    mean, by_size, by_batch = law[0], law[1], law[2] * (1 - kept) + own[-1] * kept
    beside = kept * (own[:-1] - mean - np.outer(np.log(kinds) - middle, by_size))
    return beyond.model_copy(
        update={
            "levels": tuple(
                LossLevel(
                    loss=float(loss),
                    updates=float(np.exp(mean[at] - by_size[at] * middle - by_batch[at] * batches.mean())),
                    workers_exponent=float(by_size[at]),
                    batch_exponent=float(by_batch[at]),
                    sizes=_factors(kinds, beside[:, at]),
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


def _kept(law_off: Array, own_off: Array, more: int, left: int) -> Array:
    """Of what sizes take beside the power law, the share that is no noise: 1 − 1 / F, or 0.

    F is what each of ``more`` coefficients explains, over the noise that is left.
    """
    if more < 1 or left < 1:
        nothing: Array = np.zeros(len(law_off))
        return nothing
    explained, noise = np.maximum(law_off - own_off, 0.0) / more, own_off / left
    share: Array = np.where(explained > noise, 1 - noise / np.maximum(explained, 1e-300), 0.0)
    return share


def _factors(kinds: Array, beside: Array) -> tuple[SizeFactor, ...]:
    if not beside.any():
        return ()
    return tuple(
        SizeFactor(workers=int(size), factor=float(np.exp(off))) for size, off in zip(kinds, beside, strict=True)
    )


# How sure -------------------------------------------------------------------------------------------------


def spreads(losses: Array, off: Array) -> tuple[LossSpread, ...]:
    """Of ln(predicted / replayed), ``[replay, loss]``: the root mean square at each loss and at its neighbours.

    Where a curve is flat, orders of the same samples pass a loss far apart: one spread of all losses would be too
    wide for the steep part and too narrow for that. Empty if some of ``off`` is not finite.
    """
    if not np.isfinite(off).all():
        return ()
    squares = (off**2).mean(axis=0)
    means = [squares[max(0, at - _AROUND) : at + _AROUND + 1].mean() for at in range(len(losses))]
    return tuple(
        LossSpread(loss=float(loss), spread=float(np.sqrt(mean))) for loss, mean in zip(losses, means, strict=True)
    )


def spread_at(fitted: FittedLoss, loss: float) -> float | None:
    """Standard deviation of ln(predicted / replayed) of the updates to this loss; ``None`` if it is not known.

    Between two losses by a straight line. Below all of them it is the lowest one's, or the form's whole spread if
    that is more.
    """
    known = fitted.spreads
    if not known:
        return fitted.spread
    if loss < known[-1].loss and fitted.spread is not None:
        return max(known[-1].spread, fitted.spread)
    rising = known[::-1]
    return float(np.interp(loss, [each.loss for each in rising], [each.spread for each in rising]))
