"""How much memory a rank holds at most while blocks are measured: of its accelerator, and of the host.

An accelerator's peaks are those of blocks whose batches come from the host, as the job's own do; they begin anew with
every block. The host's is the kernel's, of the training process since it began: it cannot begin anew.
"""

from __future__ import annotations

import dataclasses
import sys

from stash.measure.agent.climb.rank import OwnRank
from stash.measure.agent.data import batches
from stash.measure.linux.memory import peak_resident_bytes
from stash.measure.run.messages import MemorySeen

_WORTH_TELLING = 1.01
"""By how much a peak must exceed the last one told."""


class MemoryWatch:
    """The peaks of one rank, told as they grow."""

    def __init__(self, rank: OwnRank) -> None:
        self._rank = rank
        self._told: MemorySeen | None = None
        self._handed_in: MemorySeen | None = None

    def begin(self) -> None:
        """Before the timed steps of a block."""
        self._of_device("reset_peak_memory_stats")

    def end(self) -> MemorySeen | None:
        """After them; None if nothing grew beyond what was ``written_down``."""
        seen = MemorySeen(
            rank=self._rank.place.rank,
            allocated_bytes=self._of_device("max_memory_allocated"),
            reserved_bytes=self._of_device("max_memory_reserved"),
            resident_bytes=peak_resident_bytes(),
            replayed_bytes=sum(batches.size(kept) for feed in self._rank.feeds for kept in feed.ring.kept),
        )
        self._handed_in = seen if _grew(self._told, seen) else None
        return self._handed_in

    def written_down(self) -> None:
        """The block counts, and with it what was told beside it."""
        self._told = self._handed_in or self._told

    def _of_device(self, function: str) -> int | None:
        """What PyTorch's allocator of this rank's device answers; None where there is none that counts."""
        if self._rank.device.type != "cuda":
            return None
        try:
            answer: int | None = getattr(sys.modules["torch"].cuda, function)(self._rank.device)
        except RuntimeError:  # of an allocator of the user's own
            return None
        return answer


def _grew(before: MemorySeen | None, now: MemorySeen) -> bool:
    if before is None:
        return True
    first, last = dataclasses.astuple(before)[1:], dataclasses.astuple(now)[1:]
    return any(b is not None and b > _WORTH_TELLING * (a or 0) for a, b in zip(first, last, strict=True))
