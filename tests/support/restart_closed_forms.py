"""How long a memoryless gang takes that goes on from checkpoints, in closed form: drawn runs are held against it."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.special import comb

from stash.spot.risk.restarting import CheckpointedJob

_TERMS, _MEAN_OF = 60, 12
"""Of Euler's summation."""
_A = 22.0
"""Its discretisation error is e^−A."""
_HOPELESS = 50.0
"""Mean revocations in one stretch from which on none is ever finished."""


def expected_seconds(job: CheckpointedJob, rate: float) -> float:
    """E[T] of a memoryless gang: R for the first start, and e^(λR) · (e^(λs) − 1) / λ for every stretch s.

    After Bougeret, Casanova, Rabie, Robert and Vivien (SC 2011), without downtime; the first start is exposed too.
    """
    if rate == 0:
        return job.restart + float(job.stretches.sum())
    with np.errstate(over="ignore"):
        steps = np.expm1(rate * job.stretches)
        return float((np.exp(rate * job.restart) * steps).sum() + np.expm1(rate * job.restart)) / rate


def in_time_exactly(job: CheckpointedJob, rate: float, seconds: float) -> float:
    """P(T ≤ ``seconds``) of a memoryless gang, by inverting T's Laplace transform.

    A stretch s that is entered with the gang at work is left after T with E[e^(−uT)] = e^(−as) / (1 − q · r): a is
    λ + u, q = λ (1 − e^(−as)) / a the revocation, r = e^(−aR) / (1 − λ (1 − e^(−aR)) / a) the restart until it holds.
    The run without revocations is an atom, which is taken out and added again. Summation after Abate and Whitt (ORSA
    J. Computing 7(1), 1995).
    """
    shortest = job.restart + float(job.stretches.sum())
    if seconds < shortest * (1 - 1e-12) or rate * max(job.restart, *job.stretches) > _HOPELESS:
        return 0.0
    sure = math.exp(-rate * shortest)
    if rate == 0 or seconds <= shortest * (1 + 1e-12):
        return sure
    t = seconds - shortest  # of what is added by revocations
    orders = np.arange(_TERMS + _MEAN_OF)
    points = np.asarray((_A + 2j * math.pi * orders) / (2 * t), dtype=np.complex128)
    values = np.real((_delays(job, rate, points) - sure) / points)
    signs = np.where(orders % 2 == 0, 1.0, -1.0)
    values[0] /= 2
    sums = np.cumsum(signs * values) * math.exp(_A / 2) / t
    weights = comb(_MEAN_OF - 1, np.arange(_MEAN_OF)) / 2.0 ** (_MEAN_OF - 1)
    return sure + float(weights @ sums[-_MEAN_OF:])


def _delays(job: CheckpointedJob, rate: float, u: npt.NDArray[np.complex128]) -> npt.NDArray[np.complex128]:
    """E[e^(−u · (T − shortest))]: [u]."""
    a = rate + u

    def held(span: float) -> npt.NDArray[np.complex128]:
        """Probability that one attempt holds, without the u of its own time."""
        return np.full_like(u, math.exp(-rate * span))

    def lost(span: float) -> npt.NDArray[np.complex128]:
        found: npt.NDArray[np.complex128] = rate * (1 - np.exp(-a * span)) / a
        return found

    start = held(job.restart) / (1 - lost(job.restart))
    again = start * np.exp(-u * job.restart)
    sizes, counts = np.unique(job.stretches, return_counts=True)
    whole = start
    for span, count in zip(sizes, counts, strict=True):
        whole = whole * (held(span) / (1 - lost(span) * again)) ** count
    return whole
