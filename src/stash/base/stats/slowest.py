"""How long the slowest of several ranks takes: that of the rank which is slowest on average, told apart from luck.

Knows matrices of step times, ``times[round, rank]`` in seconds. The largest of many noisy means lies above all true
ones, even of equal ranks: by 3 % of a step for 64 ranks, five rounds and noise of 3 %. So a rank counts as the
slowest only as far as the rounds tell it from the others. Knows nothing of rungs, nor why a rank is slow.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

BEYOND_LUCK = 1.5
"""Standard errors beyond the √(2 ln R) that the luckiest of R equal ranks reaches."""
STRAGGLER = 3.0
"""By how many standard errors a single slow rank is slower, as a rule: of its normal distribution the root of the
variance. What is assumed before measuring, besides that there is one in half of all jobs."""


def slowest(times: Matrix) -> Matrix:
    """Round by round, the time of the rank that is slowest on average.

    Either a single rank is slow, or the times of all scatter around a common one. In the first case the largest time
    is that rank's own. In the second it is drawn towards the common one by the share of luck in the variance of the
    means (James and Stein). The time is the mean of the two, weighted by how likely they are. What it varies by from
    round to round is made as large as it is uncertain: as the variance of the mixture, with that of the estimated
    share (Morris 1983, "Parametric Empirical Bayes Inference", section 3). After a single round luck is unknown, and
    the largest time it is; likewise where an accident of one round is so far from normal luck that other rounds would
    take less than no time.
    """
    rounds, ranks = times.shape
    means = times.mean(axis=0)
    top = int(np.argmax(means))
    if rounds == 1 or ranks == 1:
        return times[:, top]
    luck, found = _luck(times), float(means.var(ddof=1))
    if not luck or not found:
        return times[:, top]
    common = times.mean(axis=1)
    apart = times[:, top] - common
    alone = _straggles((means - np.median(means)) / luck)
    real = max(0.0, 1 - luck**2 / found)
    gap = (1 - real) * float(apart.mean()) / luck
    scattered = min(1.0, real + 2 / (ranks - 1) * gap**2)
    uncertain = alone + (1 - alone) * scattered + alone * (1 - alone) * gap**2
    drawn: Matrix = (
        common + (alone + (1 - alone) * real) * apart.mean() + math.sqrt(uncertain) * (apart - apart.mean())
    )
    return drawn if drawn.min() > 0 else times[:, top]


def _straggles(apart: Matrix) -> float:
    """How likely it is that the one farthest from the median is slow and the others equal; in standard errors.

    Every rank is taken to be as likely the slow one, and the likelihood of each against that of none is Bayes' factor
    of two normal distributions, of which only the slower half is taken.
    """
    exponents = np.where(apart >= 0, 0.5 * STRAGGLER**2 / (1 + STRAGGLER**2) * apart**2, -np.inf)
    most = float(exponents.max())
    factors = 2 / math.sqrt(1 + STRAGGLER**2) * np.exp(exponents - most) / len(apart)
    return float(factors.max() / (math.exp(-most) + factors.sum()))


def stands_out(times: Matrix) -> bool:
    """Whether the slowest rank is slower than R equal ones would make one by luck; needs two rounds and ranks."""
    means = times.mean(axis=0)
    reach = math.sqrt(2 * math.log(len(means))) + BEYOND_LUCK
    return float(means.max() - np.median(means)) > reach * _luck(times)


def _luck(times: Matrix) -> float:
    """Standard error of a rank's mean against the others', by what ranks vary in a round beyond the round itself."""
    rounds, ranks = times.shape
    left = times - times.mean(axis=0) - times.mean(axis=1, keepdims=True) + times.mean()
    return math.sqrt(float((left**2).sum()) / ((rounds - 1) * (ranks - 1)) / rounds)
