"""Kinds of noise for simulated jobs: how the machine's pace and each rank's steps vary from step to step.

A noise draws two series of factors around 1: what multiplies whole steps (the machine: clocks, neighbours, recorded
noise) and what multiplies one rank's compute (its own luck). Knows nothing of rungs, blocks or profiles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from bench.recorded import numbers

Series = NDArray[np.float64]
RECORDED = Path(__file__).with_name("steps.csv.gz")
_DRAWS, _STEPS = 200, 2000


class Factors(NamedTuple):
    """Of every step: ``machine[step]`` and ``ranks[step, rank]``."""

    machine: Series
    ranks: Series


class Hiccups(NamedTuple):
    """Of one rung alone (a disk that cleans up): this ``share`` of its blocks is longer by ``size``."""

    rung: str
    share: float
    size: float


@dataclass(frozen=True)
class Noise:
    """One kind of noise."""

    name: str
    machine: Callable[[np.random.Generator, int], Series]
    own: Callable[[np.random.Generator, tuple[int, int]], Series]
    ranks: int = 2
    nodes: int = 1
    unequal: float = 0.0
    """Relative spread of the ranks' true speeds."""
    hiccups: Hiccups | None = None
    of_the_run: bool = False
    """Its mean is that of the very run, as it has none in the long run."""

    def draw(self, rng: np.random.Generator, steps: int) -> Factors:
        speeds = 1 + self.unequal * np.linspace(-1, 1, self.ranks)
        return Factors(self.machine(rng, steps), speeds * self.own(rng, (steps, self.ranks)))


@lru_cache
def expect_factors(noise: Noise) -> tuple[float, Series, float]:
    """In the long run: the machine's factor, each rank's own, and that of the slowest rank of each step."""
    rng = np.random.default_rng(0)
    drawn = [noise.draw(rng, _STEPS) for _ in range(_DRAWS)]
    return (
        float(np.mean([factors.machine.mean() for factors in drawn])),
        np.mean([factors.ranks.mean(axis=0) for factors in drawn], axis=0),
        float(np.mean([factors.ranks.max(axis=1).mean() for factors in drawn])),
    )


def draw_even(rng: np.random.Generator, steps: int) -> Series:
    """A machine without noise."""
    return np.ones(steps)


def white(sigma: float) -> Callable[[np.random.Generator, tuple[int, int]], Series]:
    """Every step by itself, normally."""
    return lambda rng, shape: 1 + sigma * rng.standard_normal(shape)


def heavy(sigma: float) -> Callable[[np.random.Generator, tuple[int, int]], Series]:
    """Every step by itself, one in a hundred five times as far: Student's distribution with 3 degrees of freedom.

    No step takes less than a tenth.
    """
    return lambda rng, shape: np.maximum(0.1, 1 + sigma * rng.standard_t(3, shape))


def drifting(size: float) -> Callable[[np.random.Generator, int], Series]:
    """Slower or faster by ``size`` from the first step to the last."""
    return lambda rng, steps: 1 + size * rng.choice((-1, 1)) * np.linspace(-0.5, 0.5, steps)


def slow(sigma: float, memory: float) -> Callable[[np.random.Generator, int], Series]:
    """Noise that forgets with a time constant of ``memory`` steps (an autoregressive process)."""
    keep = np.exp(-1 / memory)

    def draw(rng: np.random.Generator, steps: int) -> Series:
        shocks = sigma * np.sqrt(1 - keep**2) * rng.standard_normal(steps)
        shocks[0] = sigma * rng.standard_normal()
        series: Series = 1 + lfilter([1.0], [1.0, -keep], shocks)
        return series

    return draw


def spells(share: float, length: int, size: float) -> Callable[[np.random.Generator, int], Series]:
    """Spells of about ``length`` steps that are slower by ``size`` and take this ``share`` of all steps."""

    def draw(rng: np.random.Generator, steps: int) -> Series:
        series = np.ones(steps + 4 * length)
        for start in np.flatnonzero(rng.random(len(series)) < share / length):
            series[start : start + rng.integers(length // 2, 2 * length - length // 2)] = 1 + size
        return series[4 * length :]

    return draw


@lru_cache
def _recording() -> Series:
    series: Series = numbers(RECORDED)[:, 0]
    return series / series.mean()


def draw_recorded(rng: np.random.Generator, steps: int) -> Series:
    """A stretch of what was recorded from a real machine, from anywhere in it; its end is joined to its start."""
    series = _recording()
    return np.take(series, rng.integers(len(series)) + np.arange(steps), mode="wrap")
