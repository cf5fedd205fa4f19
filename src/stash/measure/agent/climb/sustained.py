"""How long a cold block must be: until storage is seen to read at the rate that it sustains. Pure.

Disks, their limits and caches between lend credit after a pause, and pay out in slices of a tenth of a second. So a
block lasts about a second, and is looked at in two halves. If the second is slower beyond the noise, the first was
read on credit and belongs to the steps that run in. If both are alike, and that is sure, storage lends nothing and
cold blocks may be as short as others. Credit that outlasts the whole block is not seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, variance
from typing import NamedTuple

from stash.measure.agent.climb.sizes import BlockSize

_FEWEST_STEPS = 6
"""Halves of three steps: what a half varies by can be told."""
_ENOUGH_STEPS = 12
"""Of halves that are neither surely alike nor surely different: noise would not let more steps tell."""
_NOISE = 3.0
"""Standard errors by which halves differ, to be taken for different."""
_AGREE = 0.05
"""Of a step: halves closer than that are alike."""
_LONG = 1.0
"""Seconds in which slices of a tenth of a second average out."""
_ALIKE = 0.1
"""Of a step: halves that are closer than that, beyond the noise, prove that storage goes on as it begins."""
_SHARE = 0.15
"""Of the budget, that one cold block may take: three of them leave more than half to all the others."""


class Halves(NamedTuple):
    """Mean seconds of a step in the first and in the second half of a block, and the error of their difference."""

    first: float
    second: float
    error: float

    @property
    def on_credit(self) -> bool:
        """Whether the first was faster than storage goes on to be."""
        return self.second - self.first > max(_NOISE * self.error, _AGREE * self.second)

    @property
    def alike(self) -> bool:
        """Whether they cannot differ by much."""
        return abs(self.second - self.first) + 2 * self.error <= _ALIKE * self.second


def cold_size(data: BlockSize, most: int) -> BlockSize:
    """The cold block before anything is known of storage: like any data block, but long enough to have halves.

    ``data`` measures in whole bursts of the workers, as this does; ``most`` is the longest that the job allows.
    """
    longer = BlockSize(data.settle, _in_bursts(data, _FEWEST_STEPS))
    return longer if longer.together <= most else data


def _in_bursts(data: BlockSize, steps: float) -> int:
    return data.steps * math.ceil(steps / data.steps)


def halves(steps: Sequence[float]) -> Halves | None:
    """Of a block whose steps took these seconds, one by one; None of one that is too short."""
    half = len(steps) // 2
    if half < 2:
        return None
    first, second = list(steps[:half]), list(steps[-half:])
    # Where credit ran out within the first half, that varies by more than noise.
    return Halves(fmean(first), fmean(second), math.sqrt(2 * variance(second) / half))


def proves_steady(size: BlockSize, data: BlockSize, seen: Halves) -> bool:
    """Whether a cold block of ``size`` shows that one as short as ``data`` reads at the rate that storage keeps."""
    return size.settle == data.settle and size.steps * seen.second >= _LONG / 2 and seen.alike


def better(size: BlockSize, seen: Halves, data: BlockSize, budget: float, most: int | None) -> BlockSize:
    """The size of the next cold block; the same if this one will do, or if a better one takes too long."""
    long_enough = size.steps * seen.second >= _LONG / 2  # as long as was aimed at, or the pace has changed
    decided = seen.alike or size.steps >= _ENOUGH_STEPS
    if long_enough and decided and not seen.on_credit:
        return size
    lent = size.steps // 2 if seen.on_credit else 0
    fewest = _FEWEST_STEPS if decided or seen.on_credit else _ENOUGH_STEPS
    wanted = BlockSize(size.settle + lent, _in_bursts(data, max(fewest, _LONG / seen.second)))
    fits = wanted.together * seen.second <= _SHARE * budget and (most is None or wanted.together <= most)
    return wanted if fits else size


def remark(seen: Halves, lengthened: bool) -> str:
    """What a reader of the profile must know of reading on credit."""
    both = (
        f"storage lends credit after a pause: a cold step took {seen.first * 1e3:.3g} ms at first and "
        f"{seen.second * 1e3:.3g} ms a few steps later"
    )
    if lengthened:
        return f"{both}; fetch is at the rate that it keeps"
    return (
        f"{both}; cold blocks cannot be longer in this --budget, so in a long run fetch is larger than it says here"
    )
