"""Paired statistics of rounds: means, intervals, trends, when to stop; and the slowest of several ranks.

Knows matrices of step times, ``matrix[round, rung]`` in seconds, rungs in ladder order; knows nothing of profiles
or of what a rung means. Every difference is taken inside one round, so whatever slows a whole round cancels. Runs
after every round of a live measurement, therefore plain numpy and a few milliseconds at most.
"""

from __future__ import annotations

import math
from bisect import bisect_left

import numpy as np

from stash.core.distributions import student_probability
from stash.core.intervals import Interval, mean_interval, student_half_width
from stash.core.levels import Matrix, level, slow_share

MAD_TO_SIGMA = 1.4826
"""Median absolute deviation to standard deviation, for normal noise."""


def estimate(matrix: Matrix, wanders: bool = True) -> list[Interval]:
    """Means in seconds: entry 0 is rung 0's own time, entry i rung i minus rung i−1; they sum to the last rung's.

    Entry 0 is no difference, so its interval is a level's (``levels``); those of the others are wider than their
    differences' by what they would be longer or shorter on a machine slow all along. Unless the pace ``wanders``,
    rounds differ by what each of them draws for itself, and are independent.
    """
    matrix = _check_matrix(matrix)
    if not wanders:
        return [mean_interval(matrix[:, 0].tolist()), *increments(matrix)]
    share = slow_share(matrix)
    found = [level(matrix, 0)]
    for one in increments(matrix):
        if one.low is None or one.high is None or not share:
            found.append(one)
        else:  # that share of the value, in quadrature
            low, high = (
                math.hypot(arm, share * one.value)
                for arm in (one.value - one.low, one.high - one.value)
            )
            found.append(one.model_copy(update={"low": one.value - low, "high": one.value + high}))
    return found


def increments(matrix: Matrix) -> list[Interval]:
    """What each rung but the first adds to the one before: the mean over rounds, and Student's interval of it."""
    return [mean_interval(added) for added in np.diff(_check_matrix(matrix), axis=1).T.tolist()]


def _check_matrix(matrix: Matrix) -> Matrix:
    matrix = np.asarray(matrix, dtype=np.float64)
    if matrix.ndim != 2 or 0 in matrix.shape or not np.isfinite(matrix).all():
        raise ValueError(f"need a finite matrix of rounds x rungs, got one of shape {matrix.shape}")
    return matrix


def rounds_needed(half_width: float, wanted: float, rounds: int) -> int | None:
    """How many rounds would bring a ``half_width`` after ``rounds`` (two at least) down to ``wanted``, by its spread.

    Half-widths are Student's quantile times the spread over √n. ``None`` where no number of rounds is worth
    naming: nothing is ``wanted``, or it takes more than a thousand times as many.
    """
    if wanted <= 0 or not math.isfinite(half_width):
        return None
    goal = wanted / half_width * student_half_width(rounds) if half_width > 0 else math.inf
    counts = range(2, 1000 * rounds)
    first = bisect_left(counts, True, key=lambda count: student_half_width(count) <= goal)
    return counts[first] if first < len(counts) else None


def drift(values: Matrix) -> float | None:
    """Relative change of ``values`` from the first round to the last, if there is a trend; else ``None``.

    A trend is a Spearman rank correlation with the round number whose two-sided p is at most 0.01;
    its size is Theil and Sen's: the median slope of all pairs. Needs 6 rounds.
    """
    count = len(values)
    if count < 6:
        return None
    order = np.arange(count, dtype=np.float64)
    ranks = np.argsort(np.argsort(values)).astype(np.float64)
    rho = float(np.corrcoef(order, ranks)[0, 1])
    t = abs(rho) * math.sqrt((count - 2) / max(1e-12, 1 - rho * rho))
    if 2 * float(student_probability(count - 2, -t)) > 0.01:
        return None
    i, j = np.triu_indices(count, 1)
    slope = float(np.median((values[j] - values[i]) / (j - i)))
    return slope * (count - 1) / float(np.median(values))


def warming_up(values: Matrix) -> bool:
    """Whether ``values`` only fall, all at the beginning: the first third round by round, and hardly any after it.

    Another job that ends makes steps faster, too, but at any time and at once.
    """
    first = max(2, len(values) // 3)
    start = values[:first]
    rest = values[first:]
    if len(rest) < 3:
        return False
    typical = float(np.median(rest))
    falls = bool((np.diff(start) < 0).all()) and float(start[-1]) > typical
    return falls and float(np.ptp(rest)) < (float(start[0]) - typical) / 2


def two_modes(values: Matrix) -> tuple[float, float] | None:
    """The centres of two separate clusters of ``values``, or ``None`` if they form one.

    The values are split at their widest gap. Two modes they are if each side holds at least a quarter of
    them (and 2), the gap exceeds 1.5 times the wider side's range, and 5 % of the median.
    Needs 8 values.
    """
    count = len(values)
    if count < 8:
        return None
    ordered = np.sort(values)
    gaps = np.diff(ordered)
    cut = int(np.argmax(gaps)) + 1
    lower = ordered[:cut]
    upper = ordered[cut:]
    wider = max(float(np.ptp(lower)), float(np.ptp(upper)))
    apart = float(gaps[cut - 1]) > max(1.5 * wider, 0.05 * float(np.median(ordered)))
    if not apart or 4 * min(cut, count - cut) < count:
        return None
    return float(lower.mean()), float(upper.mean())


def spread(values: Matrix) -> float:
    """Robust relative standard deviation: scaled median absolute deviation over the median."""
    median = float(np.median(values))
    return (
        MAD_TO_SIGMA * float(np.median(np.abs(values - median))) / median
        if median > 0
        else math.nan
    )


# The slowest of several ranks


BEYOND_LUCK = 1.5
"""Standard errors beyond the √(2 ln R) that the luckiest of R equal ranks reaches."""
STRAGGLER = 3.0
"""By how many standard errors a single slow rank is slower, as a rule: of its normal distribution the root of the
variance. What is assumed before measuring, besides that there is one in half of all jobs."""


def slowest_rank_times(times: Matrix) -> Matrix:
    """Round by round, the time of the rank that is slowest on average, of ``times[round, rank]`` in seconds.

    The largest of many noisy means lies above all true ones, even of equal ranks: by 3 % of a step for 64 ranks, five
    rounds and noise of 3 %. So a rank counts as the slowest only as far as the rounds distinguish it from the others.

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
    luck = _mean_error(times)
    found = float(means.var(ddof=1))
    if not luck or not found:
        return times[:, top]
    common = times.mean(axis=1)
    apart = times[:, top] - common
    alone = _straggler_evidence((means - np.median(means)) / luck)
    real = max(0.0, 1 - luck**2 / found)
    gap = (1 - real) * float(apart.mean()) / luck
    scattered = min(1.0, real + 2 / (ranks - 1) * gap**2)
    uncertain = alone + (1 - alone) * scattered + alone * (1 - alone) * gap**2
    drawn: Matrix = (
        common
        + (alone + (1 - alone) * real) * apart.mean()
        + math.sqrt(uncertain) * (apart - apart.mean())
    )
    return drawn if drawn.min() > 0 else times[:, top]


def _straggler_evidence(apart: Matrix) -> float:
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
    return float(means.max() - np.median(means)) > reach * _mean_error(times)


def _mean_error(times: Matrix) -> float:
    """Standard error of a rank's mean against the others', by what ranks vary in a round beyond the round itself."""
    rounds, ranks = times.shape
    left = times - times.mean(axis=0) - times.mean(axis=1, keepdims=True) + times.mean()
    return math.sqrt(float((left**2).sum()) / ((rounds - 1) * (ranks - 1)) / rounds)
