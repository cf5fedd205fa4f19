"""Student's and the normal distribution: how probable, and the other way round. Without SciPy, which takes 113 MB.

Student's is the incomplete beta function: by a sum, or by its continued fraction (Abramowitz and Stegun 26.5.8 and
26.7.1, evaluated as Lentz does). Quantiles are found by Newton's steps on it. The normal quantile is Wichura's
(Applied Statistics 37, 1988, algorithm AS 241, PPND16). Twelve digits agree with SciPy's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
_TINY = 1e-300
_CLOSE = 1e-15
_MOST_TERMS = 100_000
_MOST_SUMMED = 100
_NEARLY_NORMAL = 1e6
"""Degrees of freedom beyond which the first correction of the normal distribution is exact to twelve digits."""
_LARGEST = 1e100
_FEW = 64
"""So many quantiles are found one by one, and remembered; more at once, of draws, which are never so near 0 or 1."""
_NEAR = 1e-12
_HALVINGS = 45

# AS 241: coefficients of rational functions, constant term first: near the middle, of r up to 5, and beyond.
_MIDDLE = (
    (
        3.3871328727963666080e0,
        1.3314166789178437745e2,
        1.9715909503065514427e3,
        1.3731693765509461125e4,
        4.5921953931549871457e4,
        6.7265770927008700853e4,
        3.3430575583588128105e4,
        2.5090809287301226727e3,
    ),
    (
        1.0,
        4.2313330701600911252e1,
        6.8718700749205790830e2,
        5.3941960214247511077e3,
        2.1213794301586595867e4,
        3.9307895800092710610e4,
        2.8729085735721942674e4,
        5.2264952788528545610e3,
    ),
)
_SIDE = (
    (
        1.42343711074968357734e0,
        4.63033784615654529590e0,
        5.76949722146069140550e0,
        3.64784832476320460504e0,
        1.27045825245236838258e0,
        2.41780725177450611770e-1,
        2.27238449892691845833e-2,
        7.74545014278341407640e-4,
    ),
    (
        1.0,
        2.05319162663775882187e0,
        1.67638483018380384940e0,
        6.89767334985100004550e-1,
        1.48103976427480074590e-1,
        1.51986665636164571966e-2,
        5.47593808499534494600e-4,
        1.05075007164441684324e-9,
    ),
)
_FAR = (
    (
        6.65790464350110377720e0,
        5.46378491116411436990e0,
        1.78482653991729133580e0,
        2.96560571828504891230e-1,
        2.65321895265761230930e-2,
        1.24266094738807843860e-3,
        2.71155556874348757815e-5,
        2.01033439929228813265e-7,
    ),
    (
        1.0,
        5.99832206555887937690e-1,
        1.36929880922735805310e-1,
        1.48753612908506148525e-2,
        7.86869131145613259100e-4,
        1.84631831751005468180e-5,
        1.42151175831644588870e-7,
        2.04426310338993978564e-15,
    ),
)


def normal_quantile(probability: ArrayLike) -> Array:
    """Below which value a standard normal number is with that probability; infinite for 0 and 1."""
    p = np.asarray(probability, dtype=np.float64)
    q = p - 0.5
    tail = np.minimum(p, 1 - p)
    with np.errstate(divide="ignore"):
        r = np.sqrt(-np.log(tail))
    far = np.isinf(r)
    r = np.where(far, 6.0, r)
    side = np.where(r <= 5, _rational(_SIDE, r - 1.6), _rational(_FAR, r - 5))
    side = np.where(far, np.inf, side)
    middle = q * _rational(_MIDDLE, 0.180625 - q * q)
    return np.where(np.abs(q) <= 0.425, middle, np.copysign(side, q))


def normal_probability(value: float) -> float:
    """How probable it is that a standard normal number is below ``value``."""
    return math.erfc(-value / math.sqrt(2)) / 2


def student_probability(freedom: float, value: ArrayLike) -> Array:
    """How probable it is that a number of Student's distribution of so many degrees of freedom is below ``value``.

    Of few, a whole number, by a sum (Abramowitz and Stegun 26.7.3 and 26.7.4): fast, and exact to 1e-15.
    """
    t = np.asarray(value, dtype=np.float64)
    if freedom > _NEARLY_NORMAL:
        z = t * (1 - 1 / (4 * freedom)) / np.sqrt(1 + t * t / (2 * freedom))
        return np.array([normal_probability(float(each)) for each in z.flat]).reshape(z.shape)
    return (
        _sum_probability(int(freedom), t)
        if freedom in range(1, _MOST_SUMMED)
        else np.array([_beta_probability(freedom, float(each)) for each in t.flat]).reshape(t.shape)
    )


def student_quantile(freedom: float, probability: ArrayLike) -> Array:
    """Below which value a number of Student's distribution is with that probability, between 0 and 1.

    Infinite where it is too large for a number, of next to no degrees of freedom.
    """
    p = np.asarray(probability, dtype=np.float64)
    if not freedom > 0:
        return np.full_like(p, np.nan)
    if freedom > _NEARLY_NORMAL:
        z = normal_quantile(p)
        return np.asarray(z + z * (z * z + 1) / (4 * freedom))
    if p.size > _FEW and freedom in range(1, _MOST_SUMMED):
        return _solve(freedom, p, lambda t: _sum_probability(int(freedom), t))
    one_by_one = [_student_quantile(float(freedom), float(each)) for each in p.flat]
    return np.array(one_by_one).reshape(p.shape)


@lru_cache(maxsize=4096)
def _student_quantile(freedom: float, probability: float) -> float:
    return float(
        _solve(
            freedom,
            np.array([probability]),
            lambda t: np.array([_beta_probability(freedom, float(t[0]))]),
        )[0]
    )


def _solve(freedom: float, p: Array, probability: Callable[[Array], Array]) -> Array:
    """Quantiles: from the normal ones, nearer to 0, every step of Newton's comes nearer from that side."""
    tail = np.minimum(p, 1 - p)
    t = normal_quantile(tail)
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2))
    scale /= math.sqrt(freedom * math.pi)
    for _ in range(200):
        density = scale * np.exp(-(freedom + 1) / 2 * np.log1p(t * t / freedom))
        if np.any(density < 1 / _LARGEST):
            t = np.where(density < 1 / _LARGEST, -np.inf, t)
            break
        step = (probability(t) - tail) / density
        t = t - step
        if np.all(step <= _NEAR * -t):  # the digits of a step double: what is left is rounding
            break
    return np.where(p == 0.5, 0.0, np.where(p < 0.5, t, -t))


def _sum_probability(freedom: int, t: Array) -> Array:
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


def _beta_probability(freedom: float, t: float) -> float:
    square = t * t
    below = _beta_share(freedom / 2, 0.5, freedom / (freedom + square), square / (freedom + square))
    return 1 - below / 2 if t > 0 else below / 2


def _rational(coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: Array) -> Array:
    above, below = (np.polynomial.polynomial.polyval(x, side) for side in coefficients)
    return np.asarray(above / below)


def _beta_share(a: float, b: float, x: float, rest: float) -> float:
    """The regularised incomplete beta function I_x(a, b) of x and ``rest`` = 1 − x, each as exact as it was made."""
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta_share(b, a, rest, x)
    if x == 0:
        return 0.0
    size = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(size + a * math.log(x) + b * math.log(rest)) / a
    return front * _beta_fraction(a, b, x)


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of I_x(a, b), for x below (a + 1) / (a + b + 2)."""
    numerator = 1.0
    denominator = 1 / _not_zero(1 - (a + b) * x / (a + 1))
    fraction = denominator
    for term in range(1, _MOST_TERMS):
        even = term * (b - term) * x / ((a + 2 * term - 1) * (a + 2 * term))
        denominator = 1 / _not_zero(1 + even * denominator)
        numerator = _not_zero(1 + even / numerator)
        fraction *= denominator * numerator
        odd = -(a + term) * (a + b + term) * x / ((a + 2 * term) * (a + 2 * term + 1))
        denominator = 1 / _not_zero(1 + odd * denominator)
        numerator = _not_zero(1 + odd / numerator)
        change = denominator * numerator
        fraction *= change
        if abs(change - 1) < _CLOSE:
            break
    return fraction


def _not_zero(value: float) -> float:
    return value if abs(value) >= _TINY else _TINY
