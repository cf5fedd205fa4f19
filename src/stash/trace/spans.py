"""What a trace holds once it is read: spans in columns, of one rank; and unions of intervals, which all sums rest on.

Times are whole nanoseconds, so that sums are exact. An *interval set* is an array of rows (start, stop), sorted,
without overlaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Nanoseconds = NDArray[np.int64]
NONE: Nanoseconds = np.empty((0, 2), dtype=np.int64)
NANO = 1e9

DEVICE, CALL, NOTE, FRAME, OP = range(5)
"""Kinds of spans: work of a device; calls of its runtime; annotations; functions of the script; operations."""


ITEM_BYTES = {
    "float": 4,
    "float32": 4,
    "int": 4,
    "half": 2,
    "float16": 2,
    "bfloat16": 2,
    "double": 8,
    "float64": 8,
    "long": 8,
    "int64": 8,
    "byte": 1,
    "char": 1,
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}
"""By PyTorch's names of types, in lower case."""


class CollectiveFacts(NamedTuple):
    """What a trace says of one collective beside its name; ``None`` and empty where it does not say."""

    op: str = ""
    group: str = ""
    ranks: tuple[int, ...] = ()
    sequence: int | None = None
    bytes: int | None = None
    peer: int | None = None
    """Of a send or a receive."""


@dataclass(frozen=True)
class TraceSpans:
    """TraceSpans in columns of equal length."""

    start: Nanoseconds
    stop: Nanoseconds
    label: Nanoseconds
    """Which of the trace's names."""
    track: Nanoseconds
    """The thread, or the device's stream."""
    link: Nanoseconds
    """Correlates a call with the device's work; -1 where nothing does."""

    def __len__(self) -> int:
        return len(self.start)

    def select(self, which: NDArray[np.bool_] | Nanoseconds) -> TraceSpans:
        return TraceSpans(*(column[which] for column in vars(self).values()))

    def intervals(self, which: NDArray[np.bool_] | None = None) -> Nanoseconds:
        """The union of all spans, or of those chosen."""
        chosen = slice(None) if which is None else which
        return union(np.column_stack((self.start[chosen], self.stop[chosen])))


@dataclass(frozen=True)
class RankTrace:
    """All that is kept of one rank's trace."""

    file: str
    rank: int | None
    world: int | None
    backend: str
    node: str
    """Tells machines apart; never shown."""
    names: tuple[str, ...]
    spans: Mapping[int, TraceSpans]
    """By kind, each sorted by start."""
    ops: Mapping[int, Nanoseconds]
    """What the operations of each thread cover."""
    facts: Mapping[int, CollectiveFacts]
    """By the label of the collective, where names alone do not tell it."""
    groups: Mapping[str, tuple[int, ...]]
    """Ranks of each process group, by its name."""
    damage: tuple[str, ...]
    """What could not be read, as sentences."""
    tool: str = "torch.profiler"

    @property
    def has_device(self) -> bool:
        return len(self.spans[DEVICE]) > 0


def sorted_spans(parts: list[Nanoseconds]) -> TraceSpans:
    """Rows of start, stop, label, track and link, each once, sorted by start; empties ``parts`` for want of room."""
    rows = np.concatenate([*parts, np.empty((0, 5), dtype=np.int64)])
    parts.clear()
    order = np.lexsort(rows.T[::-1])
    is_new = np.arange(len(rows)) == 0
    for column in rows.T:
        is_new[1:] |= column[order[1:]] != column[order[:-1]]
    order = order[is_new]
    return TraceSpans(*(column[order] for column in rows.T))


def union(intervals: Nanoseconds) -> Nanoseconds:
    """The interval set that covers what any of these covers."""
    if len(intervals) == 0:
        return NONE
    ordered = intervals[intervals[:, 1] > intervals[:, 0]]
    if (ordered[1:, 0] < ordered[:-1, 0]).any():
        ordered = ordered[np.argsort(ordered[:, 0], kind="stable")]
    if len(ordered) == 0:
        return NONE
    reached = np.maximum.accumulate(ordered[:, 1])
    first = np.concatenate(([True], ordered[1:, 0] > reached[:-1]))
    last = np.concatenate((first[1:], [True]))
    return np.column_stack((ordered[first, 0], reached[last]))


def join_sets(sets: Iterable[Nanoseconds]) -> Nanoseconds:
    """The union of several sets."""
    parts = [each for each in sets if len(each)]
    return union(np.concatenate(parts)) if parts else NONE


def common(one: Nanoseconds, other: Nanoseconds) -> Nanoseconds:
    """What both sets cover."""
    if len(one) == 0 or len(other) == 0:
        return NONE
    # Of every interval of one: which of the other's touch it. Both are sorted and without overlaps.
    first = np.searchsorted(other[:, 1], one[:, 0], side="right")
    last = np.searchsorted(other[:, 0], one[:, 1], side="left")
    counts = np.maximum(last - first, 0)
    rows = np.repeat(np.arange(len(one)), counts)
    offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    columns = np.repeat(first, counts) + offsets
    found = np.column_stack(
        (np.maximum(one[rows, 0], other[columns, 0]), np.minimum(one[rows, 1], other[columns, 1]))
    )
    return found[found[:, 1] > found[:, 0]]


def subtract_set(one: Nanoseconds, other: Nanoseconds) -> Nanoseconds:
    """What the first set covers and the second does not."""
    if len(one) == 0 or len(other) == 0:
        return one
    first = np.searchsorted(other[:, 1], one[0, 0])
    last = np.searchsorted(other[:, 0], one[-1, 1])
    other = other[first:last]
    edges = np.concatenate(([np.iinfo(np.int64).min], other.ravel(), [np.iinfo(np.int64).max]))
    return common(one, edges.reshape(-1, 2))


def length(intervals: Nanoseconds) -> int:
    """Nanoseconds that a set covers."""
    return int((intervals[:, 1] - intervals[:, 0]).sum())


def window(start: int, stop: int) -> Nanoseconds:
    """The set of one interval."""
    return np.array([[start, stop]], dtype=np.int64) if stop > start else NONE
