"""Waiting jobs in order, one line for each size of gang, so that a look for what fits passes none that cannot."""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterator, Sequence

import numpy as np

from stash.schedule.records import WholeNumbers


class WaitingLine:
    """Jobs that wait for GPUs of one type. Those that have got some elsewhere leave it when they are next passed."""

    def __init__(self, jobs: WholeNumbers, sizes: WholeNumbers) -> None:
        self._jobs: dict[int, array[int]] = {}
        self._places: dict[int, array[int]] = {}
        """Of each size: jobs, and their places in the whole line."""
        self._begin: dict[int, int] = {}
        self._count = len(jobs)
        for size in np.unique(sizes).tolist():
            at = np.flatnonzero(sizes == size)
            self._jobs[size], self._places[size] = array("q", jobs[at].tobytes()), array("q", at.tobytes())
            self._begin[size] = 0

    def append(self, job: int, size: int) -> None:
        self._jobs.setdefault(size, array("q")).append(job)
        self._places.setdefault(size, array("q")).append(self._count)
        self._begin.setdefault(size, 0)
        self._count += 1

    def fitting(self, waiting: Container[int], free: Sequence[int], kind: int) -> Iterator[int]:
        """In order those that wait and are no larger than what is free of the type when each one's turn comes."""
        first: dict[int, int] = {}
        for size in self._jobs:
            if size <= free[kind]:
                self._begin[size] = at = self._next(size, self._begin[size], waiting)
                if at < len(self._jobs[size]):
                    first[size] = at
        while first:
            size = min(first, key=lambda each: self._places[each][first[each]])
            yield self._jobs[size][first[size]]
            first[size] = self._next(size, first[size] + 1, waiting)
            first = {each: at for each, at in first.items() if each <= free[kind] and at < len(self._jobs[each])}

    def _next(self, size: int, at: int, waiting: Container[int]) -> int:
        line = self._jobs[size]
        while at < len(line) and line[at] not in waiting:
            at += 1
        return at
