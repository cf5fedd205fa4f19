"""From blocks to a matrix of step times: which rungs and rounds are complete, and how long a step took.

Knows how ranks combine (the job's step is its slowest rank's) and which rungs make up this profile's ladder.
Leaves statistics to ``stash.base.stats``.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from stash.base.errors import StashError
from stash.base.ladder import NAMES, rung
from stash.base.records import Block, Profile
from stash.base.stats.levels import Matrix
from stash.base.stats.rounds import calm_rounds, calmed
from stash.base.stats.slowest import slowest


class StepTimes(NamedTuple):
    """Step times of the job in seconds, ``matrix[set, rung]``: complete rounds, rungs in ladder order.

    A *set* is what repeats independently: a round, or all rounds of one set of launches where every rung has
    launches of its own. Rounds of one launch share whatever chance gave that launch.
    """

    rungs: tuple[str, ...]
    sets: tuple[tuple[int, ...], ...]
    """The rounds of each row."""
    matrix: Matrix
    disturbed: tuple[int, ...] = ()
    """Rounds whose rows are calmed: see ``base.stats.rounds.calmed``."""
    by_waits: bool = False
    """Data stalls are what steps waited for the loader, and no differences of rungs: see ``loads_itself``."""

    @property
    def rounds(self) -> tuple[int, ...]:
        """The undisturbed ones."""
        return tuple(number for numbers in self.sets for number in numbers if number not in self.disturbed)

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

    def calmed(self) -> StepTimes:
        """With what disturbed rounds cost shared out among the rungs."""
        calm = calm_rounds(self.matrix)
        disturbed = tuple(n for numbers, quiet in zip(self.sets, calm, strict=True) if not quiet for n in numbers)
        return self._replace(matrix=calmed(self.matrix), disturbed=disturbed)


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

    def complete(number: int) -> bool:
        found = [(name, per_rank.get((number, name), {})) for name in rungs]
        return all(times and (rung(name).active == "leader" or times.keys() >= everyone) for name, times in found)

    rounds = [number for number in sorted({block.round for block in profile.blocks}) if rungs and complete(number)]
    sets = _sets(profile, rounds)
    columns = [slowest(_per_set(per_rank, name, sets)[1]) for name in rungs] if sets else []
    times = StepTimes(rungs, sets, np.array(columns, dtype=np.float64).reshape(len(rungs), len(sets)).T)
    return _by_waits(profile, times) if loads_itself(profile) else times


def loads_itself(profile: Profile) -> bool:
    """Whether a step stands still exactly while its loader works: one process on CPUs, whose loaders have no workers.

    Devices go on with what they were told before, other ranks wait too, and workers load while a step trains.
    """
    on_cpu = [rank.device for rank in profile.ranks] == ["cpu"]
    return on_cpu and {loader.workers for loader in profile.workload.loaders} == {0}


def _by_waits(profile: Profile, raw: StepTimes) -> StepTimes:
    """With columns that differ by what steps waited; those below them move along, and the last one stays.

    What is left of the difference between rungs is no time of the loader: it goes to what the first rung takes.
    """
    values = rank_values(profile, lambda block: block.wait_seconds)
    reading = [name for name in raw.rungs if rung(name).reads_data]
    if not raw.sets or not reading or not all((number, name) in values for name in reading for number in raw.rounds):
        return raw
    matrix = raw.matrix.copy()
    for at in range(len(raw.rungs) - 1, len(raw.rungs) - len(reading) - 1, -1):
        name, below = raw.rungs[at], raw.rungs[at - 1] if at else None
        if below is None:
            break
        stall = _per_set(values, name, raw.sets)[1][:, 0]
        if below in reading:
            stall = stall - _per_set(values, below, raw.sets)[1][:, 0]
        matrix[:, :at] += (matrix[:, at] - stall - matrix[:, at - 1])[:, None]
    return raw._replace(matrix=matrix, by_waits=True)


def _sets(profile: Profile, rounds: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The rounds that the same launches measured; each by itself where one launch climbs the whole ladder."""
    if not profile.settings.isolated:
        return tuple((number,) for number in rounds)
    top = climbed_rungs(profile)[-1:]
    launch = {block.round: block.launch for block in profile.blocks if (block.rung,) == top}
    return tuple(tuple(numbers) for _, numbers in itertools.groupby(rounds, launch.__getitem__))


def _per_set(
    values: dict[tuple[int, str], dict[int, float]], name: str, sets: Sequence[Sequence[int]]
) -> tuple[list[int], Matrix]:
    ranks = sorted(set.intersection(*(set(values[number, name]) for numbers in sets for number in numbers)))
    if not ranks:
        raise StashError(f"no rank has a block of {name} in every complete round; profile again")
    rows = [[[values[number, name][rank] for rank in ranks] for number in numbers] for numbers in sets]
    return ranks, np.array([np.mean(row, axis=0) for row in rows], dtype=np.float64)


def rank_times(profile: Profile, times: StepTimes, name: str) -> tuple[list[int], Matrix]:
    """Ranks with a block of the rung ``name`` in every round, ascending; seconds of their steps, ``[set, rank]``."""
    return _per_set(rank_values(profile, lambda block: block.seconds), name, times.sets)


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
