"""The seconds that a search may take, and what launches take of them: the one place where that is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import fmean
from typing import Any

from stash.fix.decision import ARMS, LOOKS, SCREENED

TURNS, MOST_TURNS = 3, 6
"""Rounds of a launch in which loaders take turns; more than the least only within twice what its start takes."""
_BLOCK_SECONDS, _TURN_STEPS = 1.5, 8
"""Seconds that a block takes, half where no queue is filled, and its steps."""
_TURNS_SHARE, _AGAIN_SHARE = 0.3, 0.2
"""Shares of the time that is left, for turns, and for turns once more of what noise may hide."""
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

    def has_room(self, launches: float, beside: float = 0.0) -> bool:
        """Whether so many launches would end in time, with so many seconds left for something else."""
        return self.seconds_left() >= launches * self.launch_seconds() + beside

    def has_room_to_combine(self, changes: int) -> bool:
        """Whether so many can be launched together, and all but each one, and be proven after that."""
        return self.has_room((LOOKS[0] + 1) * (changes + 2))

    def is_short(self, launches: int = 1) -> bool:
        """Whether after so many more launches there would be no time left to prove a change, if there was any."""
        return self.reserve > 0 and not self.has_room(launches, self.reserve)

    def count_screened(self) -> int:
        """Changes that can each be launched as often as it takes to screen them, with a proof after them."""
        spare = (self.seconds_left() - self.reserve) / self.launch_seconds()
        return max(1, int(spare / SCREENED) - 1 if self.reserve else int(spare))

    def count_proven(self) -> int:
        """Changes that can be proven together."""
        return max(1, int(self.seconds_left() / self.launch_seconds() / LOOKS[0]) - 2)

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

    def fits_again(self, rungs: Iterable[BlockSettings], rounds: int, step: float) -> bool:
        """Whether there is time for these to take turns once more."""
        left = self.seconds_left()
        room = min(left - self.reserve, _AGAIN_SHARE * left)
        return self.turns_seconds(rungs, rounds, step) <= room

    def plan_turns(self, rungs: Sequence[BlockSettings], step: float) -> tuple[int, int]:
        """How many of these, from the first on, take turns in one launch, with a proof after it; and its rounds.

        None if not even two can.
        """
        blocks = [self.block_seconds(rung, step) for rung in rungs]
        seconds = [TURNS * (blocks[0] + spent) for spent in accumulate(blocks)]
        if len(seconds) < 2:
            return 0, 0
        left = self.seconds_left() - self.starting
        share = _TURNS_SHARE * self.seconds_left() - self.starting
        room = min(left - self.reserve, max(seconds[1], share))
        fit = sum(spent <= room for spent in seconds)
        if fit < 2:
            return 0, 0
        rounds = int(2 * self.starting * TURNS / seconds[fit - 1])
        return fit, min(MOST_TURNS, max(TURNS, rounds))

    def rounds_in_turns(self, rungs: Iterable[BlockSettings], launches: int, step: float) -> int:
        """Rounds of one launch in which these take turns, for which there is time after so many others."""
        spare = self.seconds_left() - self.starting - launches * self.launch_seconds()
        return max(
            0, min(MOST_TURNS, int(spare / (self.turns_seconds(rungs, 1, step) - self.starting)))
        )
