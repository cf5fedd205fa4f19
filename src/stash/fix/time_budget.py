"""The seconds that a search may take, and what launches take of them: the one place where that is computed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

TURNS = 3
"""Rounds of a launch in which settings take turns."""
_BLOCK_SECONDS, _TURN_STEPS = 1.5, 8
"""Seconds that a block takes, half where no queue is filled, and its steps."""
_TURNS_SHARE = 0.4
"""Of the time that is left, for turns; two settings may have all of it."""
_LATE = 1.3
"""Times what blocks are thought to take, where a launch that is ended before its end shows nothing."""
BlockSettings = Mapping[str, Any]
"""What is set in some blocks of a launch."""


@dataclass(frozen=True)
class TimeBudget:
    """What is left at the last event."""

    left: float
    """Seconds until time is up."""
    step: float
    """Seconds of a step as typed."""
    starting: float
    """Seconds of a launch until its steps are timed, and after it."""
    launches: tuple[float, ...] = ()
    """Seconds of those so far, but for turns."""

    @property
    def launch(self) -> float:
        """Seconds of a launch."""
        return fmean(self.launches)

    def has_room(self, launches: float, beside: float = 0.0) -> bool:
        """Whether so many launches would end in time, with so many seconds left for something else."""
        return self.left >= launches * self.launch + beside

    def turns_seconds(self, rungs: Iterable[BlockSettings]) -> float:
        """Seconds of a launch in which the script as typed and these take turns, at most."""
        return self.starting + _LATE * TURNS * sum(map(self._block_seconds, ({}, *rungs)))

    def _block_seconds(self, rung: BlockSettings) -> float:
        workers = int(rung.get("loader", {}).get("num_workers", 0))
        full = _BLOCK_SECONDS if "loader" in rung else _BLOCK_SECONDS / 2
        return max(full, self.step * 2 * max(_TURN_STEPS, workers))

    def count_in_turns(self, rungs: Sequence[BlockSettings]) -> int:
        """How many of these, from the first on, take turns in one launch; 0 if not even two."""
        fit = 0
        for number in range(2, len(rungs) + 1):
            share = 1.0 if number == 2 else _TURNS_SHARE
            if self.turns_seconds(rungs[:number]) <= share * self.left:
                fit = number
        return fit
