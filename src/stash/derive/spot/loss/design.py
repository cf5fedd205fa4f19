"""Which fleets to replay so that a loss curve can be fitted: of sizes, batches and speeds that differ.

Any beginning of the list is a good list too: whoever runs out of time has seen sizes and batches that differ.
"""

from __future__ import annotations

from collections.abc import Sequence

from stash.base.spot.curve import VirtualWorker

Fleet = tuple[VirtualWorker, ...]


def shapes(workers: Sequence[int], batches: Sequence[int]) -> tuple[Fleet, ...]:
    """Every number of workers with every batch, and of each number above 1 one whose first worker is as fast as all
    others together: R is √(1 − 1/N) of equal workers and about ½ of those.

    In turns, so that the first fleets differ in both.
    """
    found = [
        alike(size, batches[(number + turn) % len(batches)])
        for turn in range(len(batches))
        for number, size in enumerate(workers)
    ]
    unlike = [_one_fast(size, batches[number % len(batches)]) for number, size in enumerate(workers) if size > 1]
    return (*found, *unlike)


def alike(size: int, batch: int) -> Fleet:
    """So many workers, equally fast."""
    return (VirtualWorker(samples=batch, seconds=1.0),) * size


def _one_fast(size: int, batch: int) -> Fleet:
    slow = VirtualWorker(samples=batch, seconds=float(max(size - 1, 2)))
    return (VirtualWorker(samples=batch, seconds=1.0), *(slow,) * (size - 1))
