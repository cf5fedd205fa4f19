"""Taps: which samples a loader fetches next, decided between its sampler and its workers.

A block can start with an empty queue, and a cold and a warm block can read the same samples.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any


class Tap:
    """Stands between a sampler and the loader: hands on its index lists, or a block's own."""

    def __init__(self, sampler: Any, iterator: Iterator[Any]) -> None:
        self._sampler, self._fresh = sampler, iterator
        self.queue: deque[Any] | None = None
        """A block's own index lists; ``None``: those of the sampler."""
        self.endless = False
        """Start the sampler over at its end, as a loop that must not run out of batches needs."""
        self.drawn = 0
        self._epochs = 0

    def __iter__(self) -> Tap:
        return self

    def __next__(self) -> Any:
        if self.queue is None:
            index = self._next_fresh()
        elif self.queue:
            index = self.queue.popleft()
        else:
            raise StopIteration
        self.drawn += 1
        return index

    def _next_fresh(self) -> Any:
        try:
            return next(self._fresh)
        except StopIteration:
            if not self.endless:
                raise
        self._fresh, self._epochs = iter(self._sampler), self._epochs + 1
        return next(self._fresh)

    def take(self, count: int) -> list[Any]:
        """The next ``count`` index lists of the sampler, starting over at its end; none if it is empty.

        The remainder at the end of an epoch, shorter than the rest, is passed over: replays have none. (It may
        still come last, where it is read ahead at most.)
        """
        self.endless = True
        taken: list[Any] = []
        while len(taken) < count:
            epochs = self._epochs
            try:
                index = self._next_fresh()
            except StopIteration:
                break
            if self._epochs > epochs and taken and _length(taken[-1]) < _length(index):
                taken.pop()
            taken.append(index)
        return taken


def _length(index: Any) -> int:
    return len(index) if isinstance(index, (list, tuple)) else 1
