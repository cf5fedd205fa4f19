"""A job that goes on from its last checkpoint whenever its gang is revoked: how long it takes, how often to save.

Work W is cut into stretches of τ, each followed by C seconds of writing, the last by none. A gang that is revoked
is rented again, and the time R until it works counts as part of its life. Runs are drawn, which ``bench.spot.risk``
holds against closed forms. Nothing that a revocation could destroy is older than a checkpoint. Also how sure means
and shares over runs are that are not independent. Knows no prices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from scipy.special import lambertw

from stash.core.intervals import Interval, mean_interval
from stash.predict.draws import Array
from stash.spot.records.risks import CheckpointInterval
from stash.spot.risk.lifetimes import Gang

_MAX_REVOCATIONS = 20_000
"""Of one run."""


@dataclass(frozen=True)
class CheckpointedJob:
    """Seconds of each."""

    work: float
    interval: float
    """τ."""
    write: float
    """C; 0 with an interval that is never reached: nothing is kept until the end."""
    restart: float
    """R."""

    @property
    def stretches(self) -> Array:
        """Wall seconds between two points that nothing is lost from: [stretch]."""
        whole = max(math.ceil(self.work / self.interval - 1e-9), 1)
        last = self.work - (whole - 1) * self.interval
        return np.array([self.interval + self.write] * (whole - 1) + [last])


def drawn_seconds(
    job: CheckpointedJob, gang: Gang, runs: int, generator: np.random.Generator, until: float = math.inf
) -> tuple[Array, Array]:
    """(seconds until all is done, revocations) of so many runs of a gang of any law: [run] each.

    Infinite where that is after ``until``, or takes more than 20,000 revocations.
    """
    ends = np.concatenate([[0.0], np.cumsum(job.stretches)])
    kept, clock, revoked = np.zeros(runs, dtype=int), np.zeros(runs), np.zeros(runs)
    finished = np.zeros(runs, dtype=bool)
    going = np.arange(runs)
    for _ in range(_MAX_REVOCATIONS):
        if not len(going):
            break
        lives = gang.drawn(generator, len(going))
        at = ends[kept[going]]
        needed = job.restart + ends[-1] - at
        done = lives >= needed
        finished[going] = done
        clock[going] += np.where(done, needed, lives)
        revoked[going] += ~done
        reached = at + np.maximum(lives - job.restart, 0.0)
        kept[going] = np.searchsorted(ends, reached, side="right") - 1
        going = going[~done & (clock[going] < until)]
    return np.where(finished & (clock <= until), clock, np.inf), revoked


# Seconds of work between two checkpoints; C is what writing one takes, M the mean time between failures, λ = 1 / M.

_GRID = 200
_SERIES_TERMS = 10_000
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
    """The interval that saves most work a life, by any law: max τ · Σₖ S(R + k · (τ + C)); each starts over."""
    marks = np.arange(1.0, _SERIES_TERMS + 1)

    def saved(seconds: float) -> float:
        left = gang.survival(restart + (seconds + write) * marks)
        return seconds * float(left[left > _RAREST].sum())

    longest = max(gang.longest(_RAREST), write)
    tried = np.geomspace(longest / _SERIES_TERMS, longest, _GRID)
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


MIN_INDEPENDENT = 2.0
"""Runs from which on there is an interval: a record as long as three runs has three, however many windows overlap."""
_Z = 1.959964


def mean_of(values: Array, independent: float) -> Interval:
    """The mean of ``values``, of which so many are independent, and its 95 % interval: unknown below two."""
    found = mean_interval(values.tolist())
    if independent < MIN_INDEPENDENT or found.half_width is None:
        return Interval(value=found.value, repetitions=len(values))
    arm = found.half_width * math.sqrt(len(values) / min(independent, len(values)))
    return Interval(value=found.value, low=found.value - arm, high=found.value + arm, repetitions=len(values))


def share_of(happened: npt.NDArray[np.bool_], independent: float) -> Interval:
    """The fraction that ``happened``, with Wilson's 95 % interval (JASA 22, 1927): unknown below two."""
    share, count = float(happened.mean()), min(independent, len(happened))
    if count < MIN_INDEPENDENT:
        return Interval(value=share, repetitions=len(happened))
    middle = (share + _Z**2 / (2 * count)) / (1 + _Z**2 / count)
    arm = _Z / (1 + _Z**2 / count) * math.sqrt(share * (1 - share) / count + (_Z / (2 * count)) ** 2)
    low = 0.0 if share == 0 else middle - arm  # which it is, but for rounding
    high = 1.0 if share == 1 else middle + arm
    return Interval(value=share, low=low, high=high, repetitions=len(happened))
