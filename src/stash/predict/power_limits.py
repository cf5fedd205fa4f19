"""What a lower power limit does to a GPU's step and its energy, by published curves (``catalog/data/power_limits.csv``).

A GPU that draws P watts without a limit is slowed by a limit L below that. Over all published GPUs, models and batches
the logarithms of both ratios, seconds and joules with the limit over those without, are a curve of how far the limit
is below the draw, x = max(0, ln(1.1 P / L)), alone: a x + b x² with a and b by least squares, each model counting
alike. 1.1 is by how much the peaks of a step pass its mean. What a job waits for besides its GPU is in its draw.
Where the draw is unknown, a curve says less than the mean of other models, and nothing is forecast.
``python -m bench.predict.power`` leaves models and GPUs out in turn.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from stash.catalog.shipped import read_rows
from stash.core.intervals import TAIL, Interval
from stash.predict.draws import Array

PEAKS = 1.1
_NEAREST = 100
"""Points by whose errors an interval is made."""


class PowerPoint(NamedTuple):
    """One model and batch on one GPU under one limit below its default."""

    model: str
    gpu: str
    limit: float
    """Of the GPU's default limit."""
    draw: float
    """Mean power without a limit, of the default limit."""
    log_ratios: tuple[float, float]
    """Of seconds, and of joules, with the limit over those without."""


@lru_cache(maxsize=1)
def power_points() -> tuple[PowerPoint, ...]:
    """Every published one."""
    points = []
    for row in read_rows("power_limits.csv"):
        columns = (row[name].split() for name in ("limits_w", "epochs_s", "means_w"))
        *lower, default = [tuple(map(float, cells)) for cells in zip(*columns, strict=True)]
        most, seconds, watts = default
        for limit, took, drew in lower:
            time = math.log(took / seconds)
            ratios = time, time + math.log(drew / watts)
            points.append(
                PowerPoint(row["model"], row["gpu_model"], limit / most, watts / most, ratios)
            )
    return tuple(points)


class PowerEffect(NamedTuple):
    """With a limit, over without: 1 is no change."""

    seconds: Interval
    joules: Interval


class PowerFit(NamedTuple):
    """What was fitted to some points."""

    powers: Array
    """(2, 2): rows a and b, columns seconds and joules."""
    excesses: Array
    """x of each point."""
    errors: Array
    """(points, 2): by how much each is off the curve, as logarithms."""

    def predict(self, limit: float, draw: float) -> PowerEffect:
        """Both as shares of the GPU's default limit; intervals are by the errors of the nearest points."""
        x = _excess(np.array([limit]), np.array([draw]))
        far = np.abs(self.excesses - x)
        near = far <= np.partition(far, _NEAREST)[_NEAREST]
        middle = (_curve(x) @ self.powers)[0]
        arm = np.quantile(np.abs(self.errors[near]), 1 - 2 * TAIL, axis=0)
        ends = np.exp([middle, middle - arm, middle + arm]).T.tolist()
        return PowerEffect(*(Interval(value=each[0], low=each[1], high=each[2]) for each in ends))


def _excess(limit: Array, draw: Array) -> Array:
    return np.maximum(0.0, np.log(PEAKS * draw / limit))


def _curve(x: Array) -> Array:
    return np.stack([x, x**2], axis=1)


def fit_power(points: Sequence[PowerPoint]) -> PowerFit:
    """By least squares."""
    counts = Counter(point.model for point in points)
    weights = np.array([counts[point.model] ** -0.5 for point in points])[:, None]
    draws = np.array([point.draw for point in points])
    x = _excess(np.array([point.limit for point in points]), draws)
    ratios = np.array([point.log_ratios for point in points])
    powers = np.linalg.lstsq(_curve(x) * weights, ratios * weights, rcond=None)[0]
    return PowerFit(powers, x, ratios - _curve(x) @ powers)


@lru_cache(maxsize=1)
def shipped_fit() -> PowerFit:
    return fit_power(power_points())
