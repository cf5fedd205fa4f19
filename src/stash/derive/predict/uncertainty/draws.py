"""Monte Carlo: every uncertain number of a forecast as an array of draws, ``[draws]``, with a fixed seed.

Models take such arrays and return such arrays; what comes out has the uncertainty of what went in, through whatever
maximum or sum lies between, and no rule of thumb adds it up. A name has the same draws wherever it is used and
whatever its value is: forecasts that differ in one fact differ by that fact alone, so sweeps are smooth, and what
is monotone draw by draw is monotone. Knows nothing of what the numbers mean.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from stash.base.stats.intervals import Interval
from stash.derive.predict.uncertainty.quantity import Quantity

Array: TypeAlias = NDArray[np.float64]
"""Of draws, ``[draws]``, or of something for each draw, ``[draws, …]``."""

COUNT = 256
"""Draws of a forecast: ``python -m bench.predict.draws`` shows what more or fewer do to ends and to time."""
SEED = 14
_NORMAL = 1.959964
"""Half-width of a 95 % interval in standard deviations."""
OUTSIDE = 0.025
"""Of the draws, beyond each end of an interval."""


@dataclass(frozen=True)
class Draws:
    """So many draws from one seed."""

    count: int = COUNT
    seed: int = SEED

    def uniforms(self, name: str) -> Array:
        """Between 0 and 1, evenly spread and in an order of ``name``'s own: ``[draws]``, not to be written to.

        Stratified (McKay, Beckman, Conover 1979): one draw in each of ``count`` equal parts of the interval, at its
        middle. Means and ends then need far fewer draws than if they fell anywhere.
        """
        return _uniforms(self.count, self.seed, name)

    def normals(self, name: str) -> Array:
        """Standard normal, evenly spread likewise: ``[draws]``, not to be written to."""
        return _normals(self.count, self.seed, name)

    def weights(self, name: str, count: int) -> Array:
        """How much each of ``count`` things seen counts: positive, 1 together, ``[draws, count]``, read only.

        Means so weighted scatter as means of so many independent things do, σ/√count: a Bayesian bootstrap (Rubin
        1981) whose Dirichlet distribution has (count − 2)/count in the place of 1, which makes it unbiased. Of one
        or two things nobody can tell how they scatter, and they count alike.
        """
        return _weights(self.count, self.seed, name, count)

    def of(self, name: str, quantity: Quantity | Interval) -> Array:
        """A number with its interval as draws: normal on each side, with each side's own width.

        Between positive ends it is the logarithm that is normal, so that no draw of a rate or a time is negative.
        Without known ends every draw is the value.
        """
        value, low, high = quantity.value, quantity.low, quantity.high
        if low is None or high is None:
            return np.full(self.count, value)
        deviations = self.normals(name) / _NORMAL
        if low > 0:
            arms = np.where(deviations > 0, np.log(high / value), np.log(value / low))
            return value * np.exp(deviations * arms)
        return value + deviations * np.where(deviations > 0, high - value, value - low)

    def around(self, name: str, mean: Interval) -> Array:
        """A mean with its interval as draws whose mean it is exactly: what was measured stays what it was.

        Normal on each side likewise, on a scale that knows no end, as differences may be negative.
        """
        if mean.low is None or mean.high is None:
            return np.full(self.count, mean.value)
        deviations = self.normals(name) / _NORMAL
        drawn = deviations * np.where(deviations > 0, mean.high - mean.value, mean.value - mean.low)
        centred: Array = drawn + (mean.value - drawn.mean())
        return centred


@lru_cache(maxsize=256)
def _uniforms(count: int, seed: int, name: str) -> Array:
    order = np.random.default_rng([seed, zlib.crc32(name.encode())]).permutation(count)
    drawn: Array = (order + 0.5) / count
    drawn.setflags(write=False)
    return drawn


@lru_cache(maxsize=256)
def _normals(count: int, seed: int, name: str) -> Array:
    drawn: Array = ndtri(_uniforms(count, seed, name))
    drawn.setflags(write=False)
    return drawn


@lru_cache(maxsize=32)
def _weights(draws: int, seed: int, name: str, count: int) -> Array:
    alike = np.full((draws, count), 1 / count)
    if count > 2:
        random = np.random.default_rng([seed, zlib.crc32(name.encode())])
        alike = random.dirichlet(np.full(count, (count - 2) / count), draws)
    alike.setflags(write=False)
    return alike


def intervals(drawn: Array, repetitions: int = 1) -> tuple[Interval, ...]:
    """Of each row of ``[number, draws]``: the mean, and the ends between which 95 % of the draws lie.

    The ends always hold the mean, though that of a few far draws may lie beyond them.
    """
    outside = int(OUTSIDE * drawn.shape[1])
    ordered = np.sort(drawn, axis=1)
    means, lows, highs = drawn.mean(axis=1), ordered[:, outside], ordered[:, -1 - outside]
    return tuple(
        Interval(value=mean, low=min(low, mean), high=max(high, mean), repetitions=repetitions)
        for mean, low, high in zip(means.tolist(), lows.tolist(), highs.tolist(), strict=True)
    )
