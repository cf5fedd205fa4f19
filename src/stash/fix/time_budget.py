"""The seconds that a search may take, and what launches take of them: the one place where that is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from stash.fix.decision import ARMS, LOOKS

TURNS, MOST_TURNS = 3, 6
"""Rounds of a launch in which loaders take turns; more than the least only within twice what its start takes."""
_BLOCK_SECONDS, _TURN_STEPS = 1.5, 8
"""Seconds that a block takes, half where no queue is filled, and its steps."""
_LATE = 1.3
"""Times what blocks are thought to take, where a launch that is ended before its end shows nothing."""
BlockSettings = Mapping[str, Any]
"""What is set in some blocks of a launch."""


@dataclass
class TimeBudget:
    """``within`` seconds by ``clock``, from now on."""

    within: float
    clock: Callable[[], float]
    launches: list[float] = field(default_factory=list)
    """Seconds of those so far, but for turns."""
    starting: float = 0.0
    """Seconds of a launch until its steps are timed, and after it."""
    reserve: float = 0.0
    """Seconds set aside for a proof; where there is no time for one, all goes into what may be worth one."""

    def __post_init__(self) -> None:
        self._began = self.clock()

    def seconds_left(self) -> float:
        """Seconds until time is up."""
        return self.within - (self.clock() - self._began)

    def launch_seconds(self) -> float:
        """Seconds of a launch."""
        return fmean(self.launches)

    def has_room(self, launches: float) -> bool:
        """Whether so many launches would end in time."""
        return self.seconds_left() >= launches * self.launch_seconds()

    def is_short(self, launches: int = 1) -> bool:
        """Whether after so many more launches there would be no time left to prove a change, if there was any."""
        return (
            self.reserve > 0
            and self.seconds_left() < launches * self.launch_seconds() + self.reserve
        )

    def set_aside(self, step: float, takes_turns: bool, starting: float) -> None:
        """Keep the seconds of a proof, if as many are left as are needed to find what it is to prove.

        A launch was seen to take ``starting`` seconds beside its steps of ``step`` seconds.
        """
        self.starting = starting
        launched = LOOKS[0] * ARMS
        rung: BlockSettings = {"loader": {}}
        proof = self.launch_seconds() + self.turns_seconds([rung], LOOKS[0], step)
        found_by = self.starting + TURNS * (ARMS + 1) * self.block_seconds(rung, step)
        if self.has_room(launched + 1):
            self.reserve = launched * self.launch_seconds()
        elif takes_turns and self.seconds_left() >= proof + found_by:
            self.reserve = proof

    def block_seconds(self, rung: BlockSettings, step: float) -> float:
        """Seconds of a block of a launch in which a step as typed takes ``step``."""
        workers = int(rung.get("loader", {}).get("num_workers", 0))
        full = _BLOCK_SECONDS if "loader" in rung else _BLOCK_SECONDS / 2
        return max(full, step * 2 * max(_TURN_STEPS, workers))

    def turns_seconds(self, rungs: Iterable[BlockSettings], rounds: int, step: float) -> float:
        """Seconds of a launch in which the script as typed and these take turns, at most."""
        return self.starting + _LATE * rounds * sum(
            self.block_seconds(rung, step) for rung in ({}, *rungs)
        )

    def rounds_in_turns(self, rungs: Iterable[BlockSettings], launches: int, step: float) -> int:
        """Rounds of one launch in which these take turns, for which there is time after so many others."""
        spare = self.seconds_left() - self.starting - launches * self.launch_seconds()
        return max(
            0, min(MOST_TURNS, int(spare / (self.turns_seconds(rungs, 1, step) - self.starting)))
        )
