"""Intervals as they were made until 2026-11-22, to be compared with: rounds of any launch are independent.

The slowest rank is the one with the largest mean, disturbed rounds are left out, and compute is treated like a
difference. Kept only so that ``bench.interval_coverage`` can show what changed.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from stash.analysis.step_times import climbed_rungs, rank_values
from stash.core.intervals import Interval
from stash.core.ladder import rung
from stash.core.records.profile import Profile
from stash.core.rounds import MAD_TO_SIGMA, _weights


def former(profile: Profile) -> list[Interval]:
    """Compute, what each rung adds, and the step, as they were estimated."""
    values = rank_values(profile, lambda block: block.seconds)
    columns = []
    for name in climbed_rungs(profile):
        rounds = sorted(number for number, other in values if other == name)
        times = np.array([[values[number, name][rank] for rank in sorted(values[number, name])] for number in rounds])
        columns.append(times[:, 0] if rung(name).active == "leader" else times[:, times.mean(axis=0).argmax()])
    matrix = np.column_stack(columns)
    kept = matrix[_kept(matrix)]
    return [*_estimate(kept), *_estimate(kept[:, -1:])]


def _kept(matrix: NDArray[np.float64]) -> NDArray[np.bool_]:
    distance = np.abs(matrix - np.median(matrix, axis=0))
    sigma = MAD_TO_SIGMA * np.median(distance, axis=0)
    disturbed = ((distance > 6 * sigma) & (distance > 0.1 * np.median(matrix, axis=0))).any(axis=1)
    if len(matrix) < 5 or 4 * disturbed.sum() > len(matrix):
        return np.ones(len(matrix), dtype=np.bool_)
    return ~disturbed


def _estimate(matrix: NDArray[np.float64]) -> list[Interval]:
    rounds = len(matrix)
    parts = np.diff(matrix, axis=1, prepend=0.0)
    means = parts.mean(axis=0)
    quantile = float(stdtrit(rounds - 1, 0.975))
    tail = float(ndtr(-math.sqrt(rounds / (rounds - 1)) * quantile))
    low, high = np.quantile(_weights(rounds) @ parts, [tail, 1 - tail], axis=0)
    student = quantile * parts.std(axis=0, ddof=1) / math.sqrt(rounds)
    low, high = np.minimum(low, means - student), np.maximum(high, means + student)
    return [Interval(value=v, low=a, high=b) for v, a, b in zip(means, low, high, strict=True)]
