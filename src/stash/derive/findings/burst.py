"""Whether reading a disk became slower for good: volumes that carry a burst and then only what was paid for.

Looks at one record's repetitions in the order in which they were taken. What the page cache answered says nothing
about a disk and is left alone.
"""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

from stash.base.records import DiskRead
from stash.base.stats.intervals import Interval, overall_interval
from stash.derive.findings.rates import read_rate

_SLOWER = 1.5
_FEWEST = 3
"""Repetitions on each side of the change."""


class Burst(NamedTuple):
    """Rates in bytes per second before and after, and how long the burst lasted."""

    seconds: float
    first: Interval
    later: Interval


def burst(read: DiskRead) -> Burst | None:
    """The burst that ended while reading, if one did.

    Every repetition before its end must be faster than every one after, and the two rates ``_SLOWER`` times apart,
    with intervals that do not touch.
    """
    if not (read.cold or read.direct):
        return None
    spells = [(t.bytes / seconds, seconds) for t in read.timings for seconds in t.seconds if seconds > 0]
    rates = [rate for rate, _ in spells]
    slowest_before, fastest_after = [*accumulate(rates, min)], [*accumulate(reversed(rates), max)][::-1]
    gaps = {cut: slowest_before[cut - 1] / fastest_after[cut] for cut in range(_FEWEST, len(spells) - _FEWEST + 1)}
    if not gaps or max(gaps.values()) <= 1:
        return None
    end = max(gaps, key=lambda cut: gaps[cut])
    first, later = (overall_interval([rate for rate, _ in part]) for part in (spells[:end], spells[end:]))
    if not later.slower_than(first, _SLOWER):
        return None
    return Burst(sum(seconds for _, seconds in spells[:end]), first, later)


def sustained_rate(read: DiskRead) -> Interval | None:
    """Bytes per second once a burst is over, or of all repetitions where none ended."""
    end = burst(read)
    return read_rate(read) if end is None else end.later
