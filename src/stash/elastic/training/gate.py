"""Stale-synchronous parallel training: a worker may be at most ``bound`` updates ahead of the slowest one.

After Ho et al. (NeurIPS 2013). Without a bound it is asynchronous, and nobody ever waits. Counts are the gate's own:
who joins begins where the slowest is, and who leaves holds nobody up. Knows nothing of time.
"""

from __future__ import annotations


class SspGate:
    """The clocks of the workers that train now."""

    def __init__(self, bound: int | None) -> None:
        """``None`` is no bound; 0 lets all do their n-th update before any does its next."""
        if bound is not None and bound < 0:
            raise ValueError(f"a bound of {bound} updates would let nobody train")
        self.bound = bound
        self._clocks: dict[str, int] = {}

    def join(self, worker: str) -> None:
        self._clocks[worker] = min(self._clocks.values(), default=0)

    def leave(self, worker: str) -> None:
        """Harmless for one that is not there."""
        self._clocks.pop(worker, None)

    def advance(self, worker: str) -> None:
        """One update of this worker's is done; of one that left it counts for nothing."""
        if worker in self._clocks:
            self._clocks[worker] += 1

    def open(self, worker: str) -> bool:
        """Whether this worker may begin its next update."""
        if self.bound is None or worker not in self._clocks:
            return True
        return self._clocks[worker] - min(self._clocks.values()) <= self.bound

    @property
    def workers(self) -> tuple[str, ...]:
        return tuple(self._clocks)
