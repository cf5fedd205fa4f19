"""Repeating a measurement within a share of the time, and cutting a long transfer into equal repetitions. Pure.

Knows clocks and counts; not what is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise

from stash.base.records import Timing

Mark = tuple[float, int]
"""A moment of a transfer: seconds on some clock, and bytes moved until then."""


def repeat(
    act: Callable[[], float],
    seconds: float,
    *,
    least: int = 6,
    most: int = 50,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, ...]:
    """What ``act`` returned, again and again until ``seconds`` are spent; the first one warms up and is dropped.

    At least ``least`` times, even when that takes longer, and at most ``most`` times.
    """
    end = clock() + seconds
    act()
    taken: list[float] = []
    while len(taken) < most and (len(taken) < least or clock() < end):
        taken.append(act())
    return tuple(taken)


def equal_parts(marks: Sequence[Mark], parts: int) -> Timing | None:
    """A transfer as ``parts`` repetitions of equally many bytes, each with the seconds it took, in order.

    Between two marks bytes are taken to flow evenly. ``None`` if fewer than two marks differ in bytes.
    """
    if len(marks) < 2 or marks[-1][1] <= marks[0][1]:
        return None
    size = (marks[-1][1] - marks[0][1]) // parts
    if size == 0:
        return None
    edges = [_moment(marks, marks[0][1] + size * k) for k in range(parts + 1)]
    return Timing(bytes=size, seconds=tuple(b - a for a, b in pairwise(edges)))


def _moment(marks: Sequence[Mark], count: int) -> float:
    """When ``count`` bytes had been moved."""
    for (t0, n0), (t1, n1) in pairwise(marks):
        if n0 <= count <= n1 and n1 > n0:
            return t0 + (t1 - t0) * (count - n0) / (n1 - n0)
    return marks[-1][0]
