"""How long single batches take to make, as their workers counted it, and what their order makes a step wait.

Batches are handed out in the order of their samples: while a slow one is made, later ones lie ready. What is waited
is simulated for both orders with the same draws, so that their ratio holds although the numbers of a step do not.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from random import Random

from stash.core.measured import FIRST_TOOK
from stash.core.records.profile import Profile

SLOW = 8.0
"""Times the median, from which a batch is a slow one."""
_FEWEST = 40
"""Batches that tell how rare slow ones are."""
_DRAWN = 4000


WORKING = 0.3
"""Of the time in which batches are made, from which that is work of cores: busy ones are waited for, too."""


def worked_share(profile: Profile) -> float | None:
    """Of the time in which batches were made, what was processor time; the rest waited. ``None`` if unknown."""
    blocks = [block for block in profile.blocks if block.fetch_cpu_seconds is not None]
    made = sum(block.fetch_seconds or 0.0 for block in blocks)
    return sum(block.fetch_cpu_seconds or 0.0 for block in blocks) / made if made > 0 else None


@dataclass(frozen=True)
class BatchTimes:
    """Of the batches of one rank, made by its workers while it trained."""

    counts: tuple[int, ...]
    """By what one took, as ``WorkerTimes.took``."""

    @cached_property
    def median(self) -> float:
        """Seconds, to a factor of the root of 2."""
        totals = list(accumulate(self.counts))
        return _middle(bisect_left(totals, totals[-1] / 2))

    @cached_property
    def slow(self) -> float:
        """The share of batches that take ``SLOW`` times the median or more."""
        return sum(count for _, count in self._slow_ones) / sum(self.counts)

    @property
    def slow_seconds(self) -> float:
        """What a slow one takes on average."""
        return sum(seconds * count for seconds, count in self._slow_ones) / sum(
            count for _, count in self._slow_ones
        )

    @cached_property
    def _slow_ones(self) -> list[tuple[float, int]]:
        times = [(_middle(power), count) for power, count in enumerate(self.counts) if count]
        return [(seconds, count) for seconds, count in times if seconds >= SLOW * self.median]

    def mean_wait_seconds(
        self, workers: int, ahead: int, train_seconds: float, in_order: bool
    ) -> float:
        """Seconds that a batch is waited for on average, with ``ahead`` batches asked of each worker."""
        draw = Random(0)
        times = draw.choices(
            [_middle(power) for power in range(len(self.counts))], self.counts, k=_DRAWN
        )
        return _simulate_waits(times, workers, ahead, train_seconds, in_order)


def batch_times(profile: Profile) -> BatchTimes | None:
    """Of data in the page cache where that was measured; ``None`` without workers, or of too few batches."""
    if not profile.workload.loaders or not profile.workload.loaders[0].workers:
        return None
    for feed in ("warm", "cold"):
        found = [row.took for row in profile.workers if row.feed == feed and row.took]
        if found and sum(map(sum, found)) >= _FEWEST:
            return BatchTimes(tuple(map(sum, zip(*found, strict=True))))
    return None


def _middle(power: int) -> float:
    return float(FIRST_TOOK * 2 ** (power - 0.5))


def _simulate_waits(
    times: Sequence[float], workers: int, ahead: int, train_seconds: float, in_order: bool
) -> float:
    """Each worker makes what it was asked for, one after the other; each batch taken asks for another one."""
    free = [0.0] * workers  # when each worker will have made all that it was asked for
    asked = [0] * workers
    ready: list[tuple[float, int]] = []  # in the order of their samples
    left = list(reversed(times))
    now = waited = 0.0
    turn = 0

    def ask() -> None:
        nonlocal turn
        worker = turn % workers if in_order else min(range(workers), key=lambda each: asked[each])
        turn += 1
        asked[worker] += 1
        free[worker] = max(now, free[worker]) + left.pop()
        ready.append((free[worker], worker))

    for _ in range(min(workers * ahead, len(times))):
        ask()
    while ready:
        at = 0 if in_order else ready.index(min(ready))
        done, worker = ready.pop(at)
        asked[worker] -= 1
        waited += max(0.0, done - now)
        now = max(now, done) + train_seconds
        if left:
            ask()
    return waited / len(times)
