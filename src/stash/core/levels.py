"""The interval of a level: a mean that is no difference, so that the slow noise of a machine does not cancel in it.

A machine that is slow for half a minute makes several rounds slow together. They tell less than as many independent
ones would, and an interval that takes them as independent is too narrow by a factor of two or three. How long the
noise remembers cannot be estimated from few rounds, so it is not estimated first and believed then: the interval is
averaged over a grid of noises, each weighted by how well it explains the rounds. Knows matrices of step times,
``matrix[round, rung]``; takes rounds as equally far apart.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stash.core.distributions import student_probability, student_quantile
from stash.core.intervals import TAIL, Interval, student_half_width

Matrix = NDArray[np.float64]

WHITE = 0.6
"""Weight, before anything is measured, of noise without memory; the rest is shared out over the grid."""
MEMORIES = {0.0: 1.0, 0.3: 1.0, 0.6: 1.0, 0.8: 1.0, 0.9: 1.3, 0.97: 1.7}
"""Correlation of the slow noise of a round with that of the next, each with its part of the rest: long memories show
least of themselves, so they count a little more."""
SHARES = (0.3, 0.6, 0.85, 0.97, 0.995)
"""Of slow noise in the variance of a round's mean over rungs."""
_GRID = np.array([(0.0, 0.0), *((memory, share) for memory in MEMORIES for share in SHARES)])
_PRIOR = np.array(
    [
        WHITE,
        *(
            (1 - WHITE) * weight / sum(MEMORIES.values()) / len(SHARES)
            for weight in MEMORIES.values()
            for _ in SHARES
        ),
    ]
)
_MIN_BEYOND = 0.1
_UNLIKE = 10.0
"""No rung's own noise is believed to be more times as large or small as that of the others."""


class _Noise(NamedTuple):
    """Covariances S of n rounds, up to their scale, under every noise of the grid, ready to be divided by.

    S = (1 − w)·I + w·R, and the inverse of R is tridiagonal: T. So S⁻¹ = T·M⁻¹ with M = (1 − w)·T + w·I, tridiagonal
    too, which needs n numbers and n steps where S⁻¹ itself would need n² of them: jobs can have a thousand rounds.
    """

    diagonal: Matrix
    """Of T, ``[round, noise]``."""
    off_diagonal: Matrix
    """What stands next to it in every row."""
    pivots: Matrix
    factors: Matrix
    """Of M = L·D·Lᵀ, ``[round, noise]``: D, and what stands below the ones of L in the row before."""
    sums: Matrix
    """Of the rows of S⁻¹, ``[noise, round]``."""
    total: Matrix
    """Of all of S⁻¹."""
    log_determinant: Matrix

    def fit(self, values: Matrix) -> tuple[Matrix, Matrix]:
        """Generalised least squares: the mean under each noise, and what is left, as a sum of squares."""
        centre = self.sums @ values / self.total
        squares = self.solve(values) @ values - centre**2 * self.total
        return centre, np.maximum(squares, 0.0)

    def solve(self, values: Matrix) -> Matrix:
        """S⁻¹ times ``values``, ``[noise, round]``."""
        x = np.empty_like(self.pivots)
        x[0] = values[0]
        for i in range(1, len(x)):
            x[i] = values[i] - self.factors[i] * x[i - 1]
        x /= self.pivots
        for i in range(len(x) - 2, -1, -1):
            x[i] -= self.factors[i + 1] * x[i + 1]
        product = self.diagonal * x
        product[1:] += self.off_diagonal * x[:-1]
        product[:-1] += self.off_diagonal * x[1:]
        divided: Matrix = product.T
        return divided


def level(matrix: Matrix, column: int) -> Interval:
    """The mean of one rung over rounds, and the interval of the mean it has in the long run.

    The noise of n rounds is σ²((1 − w)·I + w·R), where R[i, j] = ρ^|i − j| is a slow part that all rungs share. It
    shows best in each round's mean over its k rungs, in which their own noise is k times smaller; from those ρ and w
    get their weights. Of a rung that varies less by itself than others, more is slow (``_own_noise``). Under each of
    them the mean has Student's distribution (generalised least squares with Jeffreys' prior of σ); the interval holds
    95 % of the weighted sum. Of rounds without memory it is about a third wider than Student's, as ten
    rounds do not prove that there is none. Unknown after one round.
    """
    values = matrix[:, column]
    rounds = matrix.shape[0]
    mean = float(values.mean())
    if rounds == 1:
        return Interval(value=mean)
    together = _mean_noise(rounds)
    relative = matrix / matrix.mean(axis=0)
    share = _GRID[:, 1]
    alone = _make_noise(rounds, share / (share + (1 - share) * _own_noise(relative)[column]))
    low, high = _interval_ends(alone, _weights(together, relative), values - mean)
    return Interval(
        value=mean, low=mean + min(low, 0.0), high=mean + max(high, 0.0), repetitions=rounds
    )


def slow_share(matrix: Matrix) -> float:
    """Half-width, as a share of any time, of what slow noise leaves open: a machine slow all along makes all longer.

    That is what the interval of the rounds' mean over rungs holds beyond Student's, in quadrature. A difference of
    rungs cancels what is added to both but not what both are multiplied by. What multiplies all shows in the rung
    that varies least, so the others are taken to vary no more. 0 for a single round.
    """
    rounds = matrix.shape[0]
    relative = matrix / matrix.mean(axis=0)
    scale = relative.std(axis=0)
    if rounds == 1 or not scale.all():
        return 0.0
    together = _mean_noise(rounds)
    rows = ((relative - 1) / scale).mean(axis=1) * float(scale.min())
    low, high = _interval_ends(together, _weights(together, relative), rows)
    return math.sqrt(
        max(0.0, ((high - low) / 2) ** 2 - student_half_width(rounds, float(rows.std(ddof=1))) ** 2)
    )


def _interval_ends(noise: _Noise, weights: Matrix, values: Matrix) -> tuple[float, float]:
    """Of the interval of the mean of ``values``, averaged over the grid: a weighted sum of Student's distributions.

    Its quantiles are found by halving the range of the members' own.
    """
    freedom = len(values) - 1
    centre, squares = noise.fit(values)
    spread = np.sqrt(squares / freedom / noise.total)
    at = np.array([TAIL, 1 - TAIL])
    ends = centre + spread * student_quantile(freedom, at)[:, None]
    low = ends.min(axis=1)
    high = ends.max(axis=1)
    scale = np.where(spread > 0, spread, math.ulp(1.0))
    for _ in range(24):
        middle = (low + high) / 2
        below = student_probability(freedom, (middle[:, None] - centre) / scale) @ weights < at
        low = np.where(below, middle, low)
        high = np.where(below, high, middle)
    lower, upper = (low + high) / 2
    return float(lower), float(upper)


def _weights(noise: _Noise, relative: Matrix) -> Matrix:
    """How well each noise of the grid explains the rounds, as weights that add up to 1; their prior if none vary.

    What rungs vary in a round tells how much of the variance of rounds is their own noise; it counts in every rung's
    own unit, as one may be noisier than another.
    """
    rounds, rungs = relative.shape
    scale = relative.std(axis=0)
    if not scale.all():
        return _PRIOR
    scaled = (relative - 1) / scale
    rows = scaled.mean(axis=1)
    own = float(((scaled - rows[:, None]) ** 2).sum())
    _, squares = noise.fit(rows)
    # Of a row's mean, the share 1 - v is own noise, k times smaller than a rung's.
    together = rungs * (1 - _GRID[:, 1]) * squares + own
    if not together.all():
        return _PRIOR
    logs = noise.log_determinant + np.log(noise.total) - (rounds - 1) * np.log(1 - _GRID[:, 1])
    logs = -0.5 * (logs + (rounds - 1) * rungs * np.log(together))
    weights = _PRIOR * np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


def _own_noise(relative: Matrix) -> Matrix:
    """Variance of every rung's own noise, in units of that of the rounds' mean over rungs; as many as rungs if alike.

    Rungs count in their own units in that mean: rung j with the part u_j, Σu = 1. What is left of rung j after it
    varies by o_j·(1 − 2u_j) + Q, where o_j is the rung's own variance and Q = Σu²·o that of the mean, all of what
    does not vary with the machine. Where a rung makes up so much of the mean that this cannot be solved (of two rungs
    each is one half), or variances are nothing at all, rungs are taken to be alike.
    """
    rounds, rungs = relative.shape
    scale = relative.std(axis=0)
    alike = np.full(rungs, float(rungs))
    if not scale.all():
        return alike
    parts = 1 / scale / (1 / scale).sum()
    beyond = 1 - 2 * parts
    if beyond.min() < _MIN_BEYOND:
        return alike
    centred = relative - 1
    left = ((centred - (centred @ parts)[:, None]) ** 2).sum(axis=0) / (rounds - 1)
    mean = float((parts**2 * left / beyond).sum() / (1 + (parts**2 / beyond).sum()))
    own = np.maximum(left - mean, 0.0) / beyond
    mean = float((parts**2 * own).sum())
    if not mean:
        return alike
    return np.asarray(np.clip(own / mean, rungs / _UNLIKE, rungs * _UNLIKE))


@lru_cache(maxsize=2)
def _mean_noise(rounds: int) -> _Noise:
    """The grid for the rounds' mean over rungs."""
    return _make_noise(rounds, _GRID[:, 1])


def _make_noise(rounds: int, share: Matrix) -> _Noise:
    """For two rounds at least."""
    memory = _GRID[:, 0]
    alone = 1 - memory**2
    diagonal = np.tile((1 + memory**2) / alone, (rounds, 1))
    diagonal[[0, -1]] = 1 / alone
    off_diagonal = -memory / alone
    pivots = (1 - share) * diagonal + share
    factors = np.zeros((rounds, len(memory)))
    for i in range(1, rounds):
        factors[i] = (1 - share) * off_diagonal / pivots[i - 1]
        pivots[i] -= (1 - share) * off_diagonal * factors[i]
    log_determinant = np.log(pivots).sum(axis=0) + (rounds - 1) * np.log(alone)
    noise = _Noise(
        diagonal, off_diagonal, pivots, factors, np.empty(0), np.empty(0), log_determinant
    )
    sums = noise.solve(np.ones(rounds))
    return noise._replace(sums=sums, total=sums.sum(axis=1))
