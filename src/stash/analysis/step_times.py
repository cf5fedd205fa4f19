"""From blocks to a matrix of step times: complete rounds, samples a step, ranks side by side, drift.

Knows how ranks combine (the job's step is its slowest rank's) and which rungs make up this profile's ladder.
Leaves statistics to ``stash.core.rounds``.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from stash.analysis.breakdown import SampleCounts, SlowRank
from stash.analysis.disturbance import BlockKey, remove_disturbance
from stash.core.errors import StashError
from stash.core.intervals import Interval, mean_interval
from stash.core.ladder import NAMES, rung
from stash.core.levels import Matrix
from stash.core.measured import Block
from stash.core.records.base import Record
from stash.core.records.profile import Profile
from stash.core.rounds import increments, slowest_rank_times, stands_out

# The matrix


class StepTimes(NamedTuple):
    """Step times of the job in seconds, ``matrix[set, rung]``: complete rounds, rungs in ladder order.

    A *set* is what repeats independently: a round, or all rounds of one set of launches where every rung has
    launches of its own. Rounds of one launch share whatever chance gave that launch.
    """

    rungs: tuple[str, ...]
    sets: tuple[tuple[int, ...], ...]
    """The rounds of each row."""
    matrix: Matrix
    by_waits: bool = False
    """Data stalls are what steps waited for the loader, and no differences of rungs: see ``loads_itself``."""
    leader_is_slow: bool = False
    """What the leader takes longer than the others is not in the rungs that it runs by itself."""

    @property
    def rounds(self) -> tuple[int, ...]:
        """The complete ones."""
        return tuple(itertools.chain(*self.sets))

    def column_of(self, name: str) -> Matrix:
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


def rungs_run(profile: Profile) -> tuple[str, ...]:
    """The rungs that make up the ladder: planned and not skipped, whether or not a round got that far."""
    skipped = {item.rung for item in profile.skipped}
    planned = profile.settings.rungs or tuple({block.rung for block in profile.blocks})
    return tuple(name for name in NAMES if name in planned and name not in skipped)


def step_matrix(profile: Profile) -> StepTimes:
    """The profile's complete rounds; the matrix has no rows if there is none.

    A round is complete when every rung of the ladder has a block of every rank that takes part in it: only
    the leader's under ``resident`` and ``solo``, all ranks' above. A rung's time is that of the rank that is
    slowest on average: the slowest of each round would count noise as waiting, where ranks do not wait for each
    other. Where batches differ in size, ranks wait in each step for another one as soon as they exchange, and that
    counts. What other work on the machines cost is subtracted, if that is not done yet.
    """
    profile = remove_disturbance(profile).profile
    rungs = rungs_run(profile)
    per_rank = rank_values(profile, lambda block: block.seconds)
    everyone = {rank.rank for rank in profile.ranks}

    def complete(number: int) -> bool:
        found = [(name, per_rank.get((number, name), {})) for name in rungs]
        return all(
            times and (rung(name).active == "leader" or times.keys() >= everyone)
            for name, times in found
        )

    rounds = [
        number
        for number in sorted({block.round for block in profile.blocks})
        if rungs and complete(number)
    ]
    sets = _sets(profile, rounds)
    longest = _longest_of_each_step(profile) if has_unequal_batches(profile) else {}

    def column(name: str) -> Matrix:
        if all((number, name) in longest for number in rounds):
            return np.array(
                [np.mean([longest[number, name] for number in numbers]) for numbers in sets]
            )
        return slowest_rank_times(_per_set(per_rank, name, sets)[1])

    columns = [column(name) for name in rungs] if sets else []
    times = StepTimes(
        rungs, sets, np.array(columns, dtype=np.float64).reshape(len(rungs), len(sets)).T
    )
    if loads_itself(profile):
        return _replace_by_waits(profile, times)
    slow = find_straggler(profile, times)
    if slow is not None:
        return _subtract_slow_leader(times, slow)
    return _add_other_batches(times, per_rank, longest)


UNEQUAL = 0.1
"""Standard deviation of batches' sizes, of their mean, from which they differ."""


def has_unequal_batches(profile: Profile) -> bool:
    """Whether the batches that a loader hands out differ in size, as those of sentences do."""
    return any((loader.batch_spread or 0.0) >= UNEQUAL for loader in profile.workload.loaders)


_EXPLAINED = 0.5
"""Of what rounds differ by, from which the sizes of their batches are taken to be why."""


def explains_rounds(profile: Profile, times: StepTimes) -> bool:
    """Whether rounds differ because of the batches that each of them drew, and not by the machine's pace."""
    steps = [block.steps for block in profile.blocks if block.rung == times.rungs[-1]]
    if not has_unequal_batches(profile) or len(times.sets) < 2 or not steps:
        return False
    sizes = max(loader.batch_spread or 0.0 for loader in profile.workload.loaders)
    rounds = (times.matrix / times.matrix.mean(axis=0)).mean(axis=1)
    return sizes / math.sqrt(float(np.median(steps))) >= _EXPLAINED * float(rounds.std(ddof=1))


def _longest_of_each_step(profile: Profile) -> dict[BlockKey, float]:
    """Seconds of a step, by round and rung, if all ranks had waited in each for the one that it keeps longest.

    Of rungs in which all ranks train and none waits for another; without blocks whose steps are not known one by one.
    """
    alone = {name for name in NAMES if rung(name).active != "leader" and not rung(name).exchanges}
    steps: dict[BlockKey, dict[int, tuple[float, ...]]] = defaultdict(lambda: defaultdict(tuple))
    for block in profile.blocks:
        if block.rung in alone:
            steps[block.round, block.rung][block.rank] += block.step_seconds
    return {
        key: float(np.max([*ranks.values()], axis=0).mean())
        for key, ranks in steps.items()
        if len({len(times) for times in ranks.values()}) == 1 and all(ranks.values())
    }


def _add_other_batches(
    raw: StepTimes,
    per_rank: dict[BlockKey, dict[int, float]],
    longest: Collection[BlockKey],
) -> StepTimes:
    """Compute is what the ranks take in the mean, where their batches differ: ``longest`` has the rungs that show it.

    By chance the leader's batches are longer or shorter than the others', in every round. Where all ranks train
    the batches of a round side by side, the mean over the ranks varies far less than the leader's step.
    """
    beside = next((name for name in raw.rungs if any(key[1] == name for key in longest)), None)
    if beside is None or not all((number, beside) in longest for number in raw.rounds):
        return raw
    ranks, seconds = _per_set(per_rank, beside, raw.sets)
    alone = [at for at, name in enumerate(raw.rungs) if rung(name).active == "leader"]
    matrix = raw.matrix.copy()
    matrix[:, alone] += (seconds.mean(axis=1) - seconds[:, ranks.index(0)])[:, None]
    return raw._replace(matrix=matrix)


def incomplete_rounds(profile: Profile, kept: StepTimes) -> tuple[int, ...]:
    """Rounds that lack blocks, which nothing is derived from."""
    begun = {
        block.round for block in profile.blocks if block.rung in kept.rungs and block.steps > 0
    }
    return tuple(sorted(begun - {*kept.rounds}))


def loads_itself(profile: Profile) -> bool:
    """Whether a step stands still exactly while its loader works: one process on CPUs, whose loaders have no workers.

    Devices go on with the work they have, other ranks wait too, and workers load while a step trains.
    """
    on_cpu = [rank.device for rank in profile.ranks] == ["cpu"]
    return on_cpu and {loader.workers for loader in profile.workload.loaders} == {0}


def _replace_by_waits(profile: Profile, raw: StepTimes) -> StepTimes:
    """With columns that differ by what steps waited; those below them move along, and the last one stays.

    What is left of the difference between rungs is no time of the loader: it goes to what the first rung takes.
    """
    values = rank_values(profile, lambda block: block.wait_seconds)
    reading = [name for name in raw.rungs if rung(name).reads_data]
    needed = set(itertools.product(raw.rounds, reading))
    if not needed or not values.keys() >= needed:
        return raw
    matrix = raw.matrix.copy()
    waited = {name: _per_set(values, name, raw.sets)[1][:, 0] for name in reading}
    for at in range(len(raw.rungs) - 1, max(0, len(raw.rungs) - len(reading) - 1), -1):
        stall = waited[raw.rungs[at]] - waited.get(raw.rungs[at - 1], 0.0)
        matrix[:, :at] += (matrix[:, at] - stall - matrix[:, at - 1])[:, None]
    return raw._replace(matrix=matrix, by_waits=True)


SLOW_RANK_EXCESS = 0.05
"""Of the others' step."""


class SlowRankExcess(NamedTuple):
    """The rank that all others wait for, and what it takes longer than their median in each set, in seconds."""

    record: SlowRank
    excess: Matrix


def find_straggler(profile: Profile, times: StepTimes) -> SlowRankExcess | None:
    """The slowest rank under ``crowd``, if slower than the others' median by 5 %, beyond noise and beyond luck."""
    if "crowd" not in times.rungs or len(times.sets) < 2:
        return None
    ranks, seconds = rank_times(profile, times, "crowd")
    if len(ranks) < 2:
        return None
    slow = int(np.argmax(seconds.mean(axis=0)))
    others = np.median(np.delete(seconds, slow, axis=1), axis=1)
    (excess,) = increments(np.column_stack([others, seconds[:, slow]]))
    typical = float(others.mean())
    if (
        excess.value <= SLOW_RANK_EXCESS * typical
        or not excess.is_above(0.0)
        or not stands_out(seconds)
    ):
        return None
    record = SlowRank(rank=ranks[slow], seconds=typical + excess.value, others_seconds=typical)
    return SlowRankExcess(record, seconds[:, slow] - others)


def _subtract_slow_leader(raw: StepTimes, slow: SlowRankExcess) -> StepTimes:
    """Compute is what a usual rank takes: what the leader alone takes longer, the others wait for as for any rank."""
    alone = [at for at, name in enumerate(raw.rungs) if rung(name).active == "leader"]
    if not alone or slow.record.rank != 0:
        return raw
    if raw.matrix[:, alone[-1]].mean() - slow.record.others_seconds < slow.excess.mean() / 2:
        return raw  # by itself it is none: beside the others it gets less of what all share
    matrix = raw.matrix.copy()
    matrix[:, alone] -= slow.excess[:, None]
    return raw._replace(matrix=matrix, leader_is_slow=True)


def _sets(profile: Profile, rounds: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The rounds that the same launches measured; each by itself where one launch runs the whole ladder."""
    if not profile.settings.isolated:
        return tuple((number,) for number in rounds)
    top = rungs_run(profile)[-1:]
    launch = {block.round: block.launch for block in profile.blocks if (block.rung,) == top}
    return tuple(tuple(numbers) for _, numbers in itertools.groupby(rounds, launch.__getitem__))


def _per_set(
    values: dict[tuple[int, str], dict[int, float]], name: str, sets: Sequence[Sequence[int]]
) -> tuple[list[int], Matrix]:
    rounds = [number for numbers in sets for number in numbers]
    ranks = sorted(set.intersection(*(set(values[number, name]) for number in rounds)))
    if not ranks:
        raise StashError(f"no rank has a block of {name} in every complete round; profile again")
    means = np.empty((len(sets), len(ranks)))
    for row, numbers in enumerate(sets):
        seconds = [[values[number, name][rank] for rank in ranks] for number in numbers]
        means[row] = np.mean(seconds, axis=0)
    return ranks, means


def rank_times(profile: Profile, times: StepTimes, name: str) -> tuple[list[int], Matrix]:
    """Ranks with a block of the rung ``name`` in every round, ascending; seconds of their steps, ``[set, rank]``."""
    return _per_set(rank_values(profile, lambda block: block.seconds), name, times.sets)


def rank_values(
    profile: Profile, measure: Callable[[Block], float | None]
) -> dict[BlockKey, dict[int, float]]:
    """``measure`` of a block per step, as ``{(round, rung): {rank: value}}``; unknown ones are left out.

    Should a rank have several blocks of a rung in a round, they count as one longer block.
    """
    sums: dict[BlockKey, dict[int, list[float]]] = defaultdict(dict)
    for block in profile.blocks:
        value = measure(block)
        if value is not None and block.steps > 0:
            total = sums[block.round, block.rung].setdefault(block.rank, [0.0, 0.0])
            total[0] += value
            total[1] += block.steps
    return {key: {rank: v / n for rank, (v, n) in ranks.items()} for key, ranks in sums.items()}


def mean_over_rounds(
    values: dict[BlockKey, dict[int, float]], name: str, rounds: Iterable[int]
) -> float | None:
    """Mean over ``rounds`` of a rung's values, of the rank with most; ``None`` if a round has none."""
    found = [values.get((number, name), {}).values() for number in rounds]
    return float(np.mean([max(ranks) for ranks in found])) if found and all(found) else None


# Samples

UNEVEN = 0.10
"""Of the larger: blocks whose steps differ by more trained different steps."""


def count_samples(profile: Profile, kept: StepTimes) -> SampleCounts | None:
    """Samples of a step over the kept rounds; ``None`` if neither the blocks nor the job tell.

    Steps need not be alike: accumulation may ramp up, a last batch may be short. Where only the leader steps, the
    others count as if they did as it does.
    """
    values = rank_values(profile, _trained_samples)
    replicas, world = count_readers(profile, 1), profile.world_size
    known: dict[str, float] = {}
    counted: list[float] = []
    for name in kept.rungs:
        rounds = [values.get((number, name), {}) for number in kept.rounds]
        counted += (value for ranks in rounds for value in ranks.values())
        if not rounds or not all(rounds):
            continue
        if rung(name).active == "leader":
            known[name] = float(np.mean([max(r.values()) for r in rounds])) * world * replicas
        elif all(len(ranks) == world for ranks in rounds):
            known[name] = float(np.mean([sum(ranks.values()) for ranks in rounds])) * replicas
    if known:
        return SampleCounts(per_rung=known, least=min(counted), most=max(counted))
    batch = profile.workload.batch
    if batch is None:
        return None
    per_rung = dict.fromkeys(kept.rungs, batch * world * replicas)
    return SampleCounts(per_rung=per_rung, least=batch, most=batch)


def _trained_samples(block: Block) -> float | None:
    # By all steps but the first: one batch read ahead may count for it or be missing. It is missing in a block's
    # last step where a loader that is made for every epoch handed it out at the epoch's end.
    later = block.step_samples[1:]
    if len(later) > 1 and not later[-1] and any(later):
        later = later[:-1]
    if block.samples is None or not later:
        return block.samples
    return sum(later) * block.steps / len(later)


def count_readers(profile: Profile, ranks: int | None = None) -> float:
    """Of so many ranks, by default all, as many as read other samples: fewer where some share a replica of the model.

    Those that share one read the same samples, which count once.
    """
    ranks = profile.world_size if ranks is None else ranks
    return ranks * (profile.workload.replicas or profile.world_size) / profile.world_size


def samples_differ(counts: Collection[float]) -> bool:
    """Whether samples per step, of blocks or of rungs, are clearly not the same."""
    return max(counts) - min(counts) > UNEVEN * max(counts)


# Ranks side by side


class RankTime(Record):
    """One rank's step under one rung: mean over the kept rounds, in seconds."""

    rank: int
    rung: str
    time: Interval


def ranks_side_by_side(profile: Profile, kept: StepTimes) -> tuple[RankTime, ...]:
    """All ranks' times by rung, in ladder order, ranks ascending; rungs that only the leader runs have one.

    Blocks of ranks that the profile does not name are left out.
    """
    values = rank_values(profile, lambda block: block.seconds)
    found: list[RankTime] = []
    for name, rank in itertools.product(kept.rungs, sorted({rank.rank for rank in profile.ranks})):
        rounds = [values.get((number, name), {}) for number in kept.rounds]
        times = [ranks[rank] for ranks in rounds if rank in ranks]
        if times:
            found.append(RankTime(rank=rank, rung=name, time=mean_interval(times)))
    return tuple(found)
