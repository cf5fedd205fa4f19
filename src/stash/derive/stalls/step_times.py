"""From blocks to a matrix of step times: which rungs and rounds are complete, and how long a step took.

Knows how ranks combine (the job's step is its slowest rank's) and which rungs make up this profile's ladder.
Leaves statistics to ``stash.base.stats.rounds``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stash.base.ladder import NAMES, rung
from stash.base.records import Block, Profile
from stash.base.stats.rounds import Matrix


class StepTimes(NamedTuple):
    """Step times of the job in seconds, ``matrix[round, rung]``: complete rounds, rungs in ladder order."""

    rungs: tuple[str, ...]
    rounds: tuple[int, ...]
    matrix: Matrix

    def of(self, name: str) -> Matrix:
        """The column of the rung ``name``, which must be one of ``rungs``."""
        return self.matrix[:, self.rungs.index(name)]

    @property
    def step_seconds(self) -> float:
        """The mean of the highest rung: the step as it really is."""
        return float(self.matrix[:, -1].mean())

    @property
    def top_replay(self) -> str | None:
        """The highest rung that waits for no data; ``None`` if every rung does."""
        return next((name for name in reversed(self.rungs) if rung(name).replays), None)

    def kept(self, mask: NDArray[np.bool_]) -> StepTimes:
        """Only the rounds for which ``mask`` is true."""
        rounds = tuple(number for number, keep in zip(self.rounds, mask, strict=True) if keep)
        return StepTimes(self.rungs, rounds, self.matrix[mask])


def climbed_rungs(profile: Profile) -> tuple[str, ...]:
    """The rungs that make up the ladder: planned and not skipped, whether or not a round got that far."""
    skipped = {item.rung for item in profile.skipped}
    planned = profile.settings.rungs or tuple({block.rung for block in profile.blocks})
    return tuple(name for name in NAMES if name in planned and name not in skipped)


def step_matrix(profile: Profile) -> StepTimes:
    """The profile's complete rounds; the matrix has no rows if there is none.

    A round is complete when every rung of the ladder has a block of every rank that takes part in it: only
    the leader's under ``resident`` and ``solo``, everybody's above. A rung's time is that of the rank that is
    slowest on average: the slowest of each round would count noise as waiting, where ranks do not wait for each
    other.
    """
    rungs = climbed_rungs(profile)
    per_rank = rank_values(profile, lambda block: block.seconds)
    everyone = {rank.rank for rank in profile.ranks}
    rounds: list[int] = []
    complete_rounds: list[list[dict[int, float]]] = []
    for number in sorted({block.round for block in profile.blocks}):
        times = [per_rank.get((number, name), {}) for name in rungs]
        complete = all(
            times_of and (rung(name).active == "leader" or times_of.keys() >= everyone)
            for name, times_of in zip(rungs, times, strict=True)
        )
        if complete and rungs:
            rounds.append(number)
            complete_rounds.append(times)
    columns = [_slowest_on_average(list(column)) for column in zip(*complete_rounds, strict=True)]
    matrix = np.array(columns, dtype=np.float64).reshape(len(rungs), len(rounds)).T
    return StepTimes(rungs, tuple(rounds), matrix)


def _slowest_on_average(rounds: list[dict[int, float]]) -> list[float]:
    """Times, round by round, of the rank whose mean over the rounds is largest; all rounds have the same ranks."""
    slowest = max(sorted(rounds[0]), key=lambda rank: sum(times[rank] for times in rounds))
    return [times[slowest] for times in rounds]


def rank_values(
    profile: Profile, measure: Callable[[Block], float | None]
) -> dict[tuple[int, str], dict[int, float]]:
    """``measure`` of a block per step, as ``{(round, rung): {rank: value}}``; unknown ones are left out.

    Should a rank have several blocks of a rung in a round, they count as one longer block.
    """
    sums: dict[tuple[int, str], dict[int, list[float]]] = defaultdict(dict)
    for block in profile.blocks:
        value = measure(block)
        if value is None or block.steps <= 0:
            continue
        total = sums[block.round, block.rung].setdefault(block.rank, [0.0, 0.0])
        total[0] += value
        total[1] += block.steps
    return {key: {rank: v / n for rank, (v, n) in ranks.items()} for key, ranks in sums.items()}


def mean_over_rounds(
    values: dict[tuple[int, str], dict[int, float]],
    name: str,
    rounds: Iterable[int],
    combine: Callable[[list[float]], float] = max,
) -> float | None:
    """Mean over ``rounds`` of a rung's values, ranks combined; ``None`` if a round has none."""
    found = [list(values.get((number, name), {}).values()) for number in rounds]
    if not found or not all(found):
        return None
    return float(np.mean([combine(ranks) for ranks in found]))
