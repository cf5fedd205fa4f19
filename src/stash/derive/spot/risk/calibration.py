"""Whether chances come true: what was said of many fleets, held against how many were in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stash.base.stats.intervals import Interval
from stash.derive.spot.risk.overlapping import share_of


@dataclass(frozen=True)
class ChanceBin:
    """Fleets of which about the same was said."""

    said: float
    """Mean chance."""
    came_true: Interval
    cases: int


def binned(said: Sequence[float], came_true: Sequence[bool], bins: int = 10) -> tuple[ChanceBin, ...]:
    """By tenths of what was said; those in which nothing was said are left out."""
    chances, seen = np.array(said), np.array(came_true, dtype=bool)
    tenth = np.minimum((chances * bins).astype(int), bins - 1)
    groups = [tenth == number for number in range(bins)]
    return tuple(
        ChanceBin(float(chances[each].mean()), share_of(seen[each], int(each.sum())), int(each.sum()))
        for each in groups
        if each.any()
    )


def brier(said: Sequence[float], came_true: Sequence[bool]) -> float:
    """Mean squared distance of the chance from what came true (Brier, Monthly Weather Review 78, 1950): 0 is best."""
    return float(np.mean((np.array(said) - np.array(came_true, dtype=float)) ** 2))
