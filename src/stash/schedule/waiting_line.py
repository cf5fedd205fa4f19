"""Waiting jobs in order, one line for each size of gang, so that a look for what fits passes none that cannot."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence


class WaitingLine:
    """Jobs that wait for GPUs of one type. Those that have got some elsewhere leave it when they are next passed."""

    def __init__(self, jobs: Sequence[int] = (), sizes: Sequence[int] = ()) -> None:
        self._of_size: dict[int, list[tuple[int, int]]] = {}
        """Of each size: (place in line, job)."""
        self._begin: dict[int, int] = {}
        self._count = 0
        for job, size in zip(jobs, sizes, strict=True):
            self.append(job, size)

    def append(self, job: int, size: int) -> None:
        if size not in self._of_size:
            self._of_size[size], self._begin[size] = [], 0
        self._of_size[size].append((self._count, job))
        self._count += 1

    def fitting(self, waiting: Container[int], free: Sequence[int], kind: int) -> Iterator[int]:
        """In order those that wait and are no larger than what is free of the type when each one's turn comes."""
        at: dict[int, int] = {}
        for size, line in self._of_size.items():
            if size <= free[kind]:
                begin = self._begin[size]
                while begin < len(line) and line[begin][1] not in waiting:
                    begin += 1
                self._begin[size] = begin
                if begin < len(line):
                    at[size] = begin
        while at:
            size = min(at, key=lambda each: self._of_size[each][at[each]])
            line = self._of_size[size]
            yield line[at[size]][1]
            at[size] += 1
            while at[size] < len(line) and line[at[size]][1] not in waiting:
                at[size] += 1
            at = {
                each: begin for each, begin in at.items() if each <= free[kind] and begin < len(self._of_size[each])
            }
