"""Student's and the normal distribution: how probable, and the other way round. Without SciPy, which takes 113 MB.

Student's is a sum (Abramowitz and Stegun 26.7.3 and 26.7.4), of very many degrees of freedom nearly the normal
distribution; its quantiles are found by Newton's steps. Of the normal one Python's own quantile is taken.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
_NORMAL = NormalDist()
_MANY = 1000
"""Degrees of freedom beyond which the first correction of the normal distribution is exact to five digits."""
_NEAR = 1e-12
_HALVINGS = 45


def normal_quantile(probability: ArrayLike) -> Array:
    """Below which value a standard normal number is with that probability; infinite for 0 and 1."""
    p = np.asarray(probability, dtype=np.float64)
    found = [
        _NORMAL.inv_cdf(each) if 0 < each < 1 else math.copysign(math.inf, each - 0.5)
        for each in p.ravel().tolist()
    ]
    return np.array(found).reshape(p.shape)


def normal_probability(value: float) -> float:
    """How probable it is that a standard normal number is below ``value``."""
    return _NORMAL.cdf(value)


def student_probability(freedom: int, value: ArrayLike) -> Array:
    """How probable it is that a number of Student's distribution of so many degrees of freedom is below ``value``."""
    t = np.asarray(value, dtype=np.float64)
    if freedom > _MANY:
        z = t * (1 - 1 / (4 * freedom)) / np.sqrt(1 + t * t / (2 * freedom))
        return np.array([_NORMAL.cdf(each) for each in z.ravel().tolist()]).reshape(z.shape)
    angle = np.arctan(t / math.sqrt(freedom))
    square = np.cos(angle) ** 2
    total = np.zeros_like(t)
    power = np.ones_like(t) if freedom % 2 == 0 else np.cos(angle)
    for number in range(freedom % 2, freedom - 1, 2):
        total = total + power
        power = power * square * ((number + 1) / (number + 2))
    within = np.sin(angle) * total
    if freedom % 2:
        within = (angle + within) * (2 / math.pi)
    return np.asarray((1 + within) / 2)


def student_quantile(freedom: int, probability: ArrayLike) -> Array:
    """Below which value a number of Student's distribution is with that probability, between 0 and 1.

    Unknown (NaN) of no degree of freedom.
    """
    p = np.asarray(probability, dtype=np.float64)
    if not freedom >= 1:
        return np.full_like(p, np.nan)
    if p.ndim == 0:
        return np.asarray(_one_quantile(freedom, float(p)))
    return _find_quantiles(freedom, p)


@lru_cache(maxsize=4096)
def _one_quantile(freedom: int, probability: float) -> float:
    return float(_find_quantiles(freedom, np.array([probability]))[0])


def _find_quantiles(freedom: int, p: Array) -> Array:
    """From the normal ones, nearer to 0, every step of Newton's comes nearer from that side."""
    if freedom > _MANY:
        z = normal_quantile(p)
        return np.asarray(z + z * (z * z + 1) / (4 * freedom))
    tail = np.minimum(p, 1 - p)
    t = normal_quantile(tail)
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2))
    scale /= math.sqrt(freedom * math.pi)
    for _ in range(100):
        density = scale * np.exp(-(freedom + 1) / 2 * np.log1p(t * t / freedom))
        step = (student_probability(freedom, t) - tail) / density
        t = t - step
        if np.all(step <= _NEAR * -t):  # the digits of a step double: what is left is rounding
            break
    return np.where(p == 0.5, 0.0, np.where(p < 0.5, t, -t))
