"""Which samples of an endless stream have been trained on: disjoint half-open ranges, kept merged.

Every server shard keeps one, so that whatever a worker sends twice is told from what is new. Knows numbers alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

Range = tuple[int, int]
"""From the first sample to the one after the last."""


class Spans:
    """A set of samples, as few ranges as it takes."""

    def __init__(self, ranges: Iterable[Sequence[int]] = ()) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        for start, stop in ranges:
            self.add(start, stop)

    @property
    def ranges(self) -> tuple[Range, ...]:
        return tuple(zip(self._starts, self._stops, strict=True))

    @property
    def samples(self) -> int:
        return sum(self._stops) - sum(self._starts)

    def add(self, start: int, stop: int) -> None:
        """Raises ValueError if the range is empty, or some of it was there: that would count it twice."""
        if not 0 <= start < stop:
            raise ValueError(f"{start} to {stop} is no range of samples")
        if self.touches(start, stop):
            raise ValueError(f"some of the samples {start} to {stop} were there before")
        at = bisect_left(self._starts, start)
        joins_left = at > 0 and self._stops[at - 1] == start
        joins_right = at < len(self._starts) and self._starts[at] == stop
        if joins_left and joins_right:
            self._stops[at - 1] = self._stops.pop(at)
            del self._starts[at]
        elif joins_left:
            self._stops[at - 1] = stop
        elif joins_right:
            self._starts[at] = start
        else:
            self._starts.insert(at, start)
            self._stops.insert(at, stop)

    def holds(self, start: int, stop: int) -> bool:
        """Whether all of the range is there."""
        at = bisect_right(self._starts, start) - 1
        return at >= 0 and stop <= self._stops[at]

    def touches(self, start: int, stop: int) -> bool:
        """Whether any of the range is there."""
        at = bisect_left(self._starts, stop) - 1
        return at >= 0 and self._stops[at] > start

    def gaps(self, end: int) -> tuple[Range, ...]:
        """What of the first ``end`` samples is not there."""
        edges = [0, *(edge for pair in self.ranges for edge in pair), end]
        pairs = zip(edges[::2], edges[1::2], strict=True)
        return tuple((start, min(stop, end)) for start, stop in pairs if start < min(stop, end))


def cut(start: int, stop: int, edges: Iterable[int], most: int) -> list[Range]:
    """The range in pieces of at most ``most`` samples, none of which has one of ``edges`` inside."""
    inside = sorted({start, stop, *(edge for edge in edges if start < edge < stop)})
    pieces = []
    for begin, end in pairwise(inside):
        pieces += [(at, min(at + most, end)) for at in range(begin, end, most)]
    return pieces
