"""How long to compute between two checkpoints: seconds of work, without those that writing takes.

C is what writing one takes, M the mean time between failures, λ = 1 / M, R what a restart takes. After a failure the
job goes on from its last checkpoint. Knows no prices.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import lambertw

from stash.base.spot.risk import CheckpointInterval
from stash.derive.spot.risk.lifetimes import Gang

_GRID = 200
_TERMS = 10_000
"""Checkpoints of one life that are counted at most."""
_RAREST = 1e-12
"""Where survival is less, nothing is counted."""


def young(write: float, mtbf: float) -> float:
    """√(2 · C · M) (Young, CACM 17(9), 1974): to first order, for C much less than M."""
    return math.sqrt(2 * write * mtbf)


def daly(write: float, mtbf: float) -> float:
    """√(2CM) · (1 + ⅓ √(C / 2M) + ⅑ · C / 2M) − C where C < 2M, else M (Daly, FGCS 22(3), 2006, equation 37)."""
    if write >= 2 * mtbf:
        return mtbf
    ratio = write / (2 * mtbf)
    return young(write, mtbf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - write


def exact(write: float, mtbf: float) -> float:
    """M · (1 + W₀(−e^(−C/M − 1))): the least expected time of a memoryless job.

    (e^(λ(τ + C)) − 1) / τ is least where its derivative is 0: (1 − λτ) · e^(λ(τ + C)) = 1, which Lambert's W solves
    (Bougeret, Casanova, Rabie, Robert and Vivien, SC 2011).
    """
    return mtbf * (1 + float(lambertw(-math.exp(-write / mtbf - 1)).real))


def numerical(write: float, gang: Gang, restart: float) -> float:
    """The interval that saves most work a life, by any law: max τ · Σₖ S(R + k · (τ + C)); each begins anew."""

    marks = np.arange(1.0, _TERMS + 1)

    def saved(seconds: float) -> float:
        left = gang.survival(restart + (seconds + write) * marks)
        return seconds * float(left[left > _RAREST].sum())

    longest = max(gang.longest(_RAREST), write)
    tried = np.geomspace(longest / _TERMS, longest, _GRID)
    worth = [saved(seconds) for seconds in tried]
    best = int(np.argmax(worth))
    around = (tried[max(best - 1, 0)], tried[min(best + 1, _GRID - 1)])
    found = minimize_scalar(lambda seconds: -saved(seconds), bounds=around, method="bounded")
    return float(found.x) if -found.fun >= worth[best] else float(tried[best])


def interval(write: float, gang: Gang, restart: float, notice: float | None) -> CheckpointInterval:
    """What to take for a gang that is revoked: Lambert's W where it is memoryless, else the numerical optimum."""
    rate, mtbf = gang.rate, gang.mean
    best = numerical(write, gang, restart) if rate is None else exact(write, mtbf)
    how = "exact, by Lambert's W" if rate is not None else "the numerical optimum: age matters to these machines"
    return CheckpointInterval(
        write_seconds=write,
        mtbf_seconds=mtbf,
        young=young(write, mtbf),
        daly=daly(write, mtbf),
        best=best,
        how=how,
        just_in_time=notice is not None and write <= notice,
    )
