"""A pipeline's bubble: what its stages stand still because no microbatch is there for them, and why.

The passes that were timed are played again, in each rank's own order, with messages that take no time
(``pipeline_schedule``). What ranks idle then, the stages' own times make them; what they would idle if passes of a
kind took equally long everywhere, the schedule makes them; what they really waited beyond that came late: over the
link, or from a peer that something held up. No common clock is needed. Steps are played one after the other, since
what ranks do outside of passes may hide in each other's idle time.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from stash.analysis.pipeline_schedule import Action, end_times, parse_order
from stash.core.measured import StagePasses
from stash.core.records.base import Record
from stash.core.records.profile import Profile

_REST = "R"
_UNLIKE = 0.05
"""By how much the slowest stage must exceed the mean to be named."""


class Bubble(Record):
    """Seconds of a step, means over ranks."""

    schedule: float
    """What the schedule makes ranks idle, with stages that take equally long."""
    unequal: float
    """What stages that do not add to that; negative where they happen to fit the schedule better."""
    late: float
    """Waited for messages beyond both: a part of interconnect or network, and none of the bubble."""
    slowest_stage: int | None = None
    """None where they are about equal."""
    slowest_ratio: float | None = None
    """Its passes' time over that of the mean stage."""
    stage_seconds: tuple[float, ...] = ()
    """Of all passes of each stage in a step."""

    @property
    def seconds(self) -> float:
        return self.schedule + self.unequal


class _Steps(NamedTuple):
    """Some steps of one rank, one after the other."""

    orders: list[Action]
    seconds: list[float]
    per_step: int
    batches: int
    """Of a step."""


class GroupWait(Record):
    """What ranks wait in a step for one kind of collective of one group, means over ranks."""

    name: str
    """Of the group: the axis of the mesh, where one has it."""
    kind: str
    stall: str
    """``interconnect`` or ``network``, by where it lies."""
    seconds: float
    least: float
    """Of each group's rank that waits least: what its exchange itself takes."""
    apart: float = 0.0
    """Waited besides, here or in calls of other groups, as this exchange does not end everywhere at once."""
    slower: float = 0.0
    """Of ``seconds``, waited for slower ranks."""
    hidden: float | None = None
    """Of the time that these calls were under way, less waits for others, what their rank did not wait; None if
    unknown."""

    @property
    def exchange(self) -> float:
        """All that ranks wait for it."""
        return self.least + self.apart


class ExpertLoad(Record):
    """How unevenly the ranks of a group are sent rows of ``all_to_all_single``: tokens of a mixture of experts."""

    name: str
    """Of the group."""
    rank: int
    """That gets most, of the group that is most uneven."""
    ratio: float
    """Its rows over those of the mean rank of its group."""
    rows: float
    """A step, of the mean rank."""
    slower: float
    """Seconds a step that ranks wait in these exchanges for slower ranks, means over ranks."""
    saves: float
    """Of ``slower``, what goes with the rows: all get as many, and it is gone."""


class Seen(Record):
    """Stalls of a job whose ranks hold one model together: no differences of rungs, but what was seen."""

    stalls: tuple[str, ...]
    """Their names."""
    waits: tuple[GroupWait, ...]
    bubble: Bubble | None = None
    """None without a pipeline whose passes were timed."""

    def longest_wait(self, stall: str) -> GroupWait | None:
        """Of the waits that are a part of ``stall``, the one whose exchange takes longest."""
        waits = (wait for wait in self.waits if wait.stall == stall)
        return max(waits, key=lambda wait: wait.exchange, default=None)


def idle_of(rows: Sequence[StagePasses], stages: int | None = None) -> tuple[float, float] | None:
    """(as scheduled, as played with the measured passes) seconds a step that the ranks of these rows idle.

    Means over ranks and the rounds whose passes are known; ``None`` if no round's are, of all stages.
    """
    found = []
    for pipeline in group_pipelines(_join_rounds(rows), stages):
        # Two steps at least: a single one goes before itself.
        single = len(pipeline[0].seconds) == len(pipeline[0].passes)
        ranks = [_steps(replace(each, seconds=(1 + single) * each.seconds)) for each in pipeline]
        # Passes of a kind that take equally long everywhere, on average as long as they do.
        by_kind: dict[str, list[float]] = defaultdict(list)
        for rank in ranks:
            for (_, kind, _), seconds in zip(rank.orders, rank.seconds, strict=True):
                by_kind[kind].append(seconds)
        mean = {kind: sum(seconds) / len(seconds) for kind, seconds in by_kind.items()}
        alike = [
            rank._replace(seconds=[mean[kind] for _, kind, _ in rank.orders]) for rank in ranks
        ]
        even = _idle_seconds(alike)
        real = _idle_seconds(ranks)
        if even is not None and real is not None:
            found.append((even, real))
    if not found:
        return None
    return sum(even for even, _ in found) / len(found), sum(real for _, real in found) / len(found)


def _join_rounds(rows: Sequence[StagePasses]) -> list[StagePasses]:
    """One row for each rank, with the steps of all rounds that every rank has some of, as many as all have."""
    rounds = itertools.groupby(sorted(rows, key=lambda row: row.round), lambda row: row.round)
    everyone = {row.rank for row in rows}
    joined: dict[int, StagePasses] = {}
    for _, group in rounds:
        of_round = list(group)
        if {row.rank for row in of_round} != everyone:
            continue
        steps = min(len(row.seconds) // len(row.passes) for row in of_round)
        for row in of_round:
            before = joined.get(row.rank)
            if before is not None and before.passes != row.passes:
                return []
            seconds = row.seconds[: steps * len(row.passes)]
            joined[row.rank] = replace(row, seconds=(before.seconds if before else ()) + seconds)
    return list(joined.values())


def group_pipelines(
    rows: Sequence[StagePasses], stages: int | None = None
) -> list[list[StagePasses]]:
    """Ranks that hold one pipeline together: of those with the same stages each belongs to one, in their order.

    None if rows of a stage are missing; ``stages`` is how many there are, if that is known.
    """

    by_stages: dict[tuple[int, ...], list[StagePasses]] = {}
    for row in sorted(rows, key=lambda each: each.rank):
        own = {stage for stage, _, _ in parse_order(" ".join(row.passes))}
        by_stages.setdefault(tuple(sorted(own)), []).append(row)
    held = sorted(stage for stages in by_stages for stage in stages)
    if held != list(range(len(held) if stages is None else stages)):
        return []
    return [list(each) for each in zip(*by_stages.values(), strict=False)]


def stage_times(profile: Profile, rung: str) -> tuple[float, ...]:
    """Seconds of a step of each stage's passes, means over ranks and rounds."""
    sums: dict[int, list[float]] = defaultdict(list)
    for row in profile.passes:
        if row.rung != rung:
            continue
        passes = parse_order(" ".join(row.passes))
        took = defaultdict[int, float](float)
        for (stage, _, _), seconds in zip(
            itertools.cycle([*passes, (-1, _REST, 0)]), row.seconds, strict=False
        ):
            took[stage] += seconds
        for stage in {stage for stage, _, _ in passes}:
            sums[stage].append(took[stage] * len(row.passes) / len(row.seconds))
    return tuple(sum(sums[stage]) / len(sums[stage]) for stage in sorted(sums))


def estimate_bubble(
    profile: Profile, rung: str, waited: float, longer: float = 1.0
) -> Bubble | None:
    """Of the steps under ``rung``, in which ranks ``waited`` for other stages on average; ``None`` if unknown.

    ``longer``: times the passes that are known, of which they were.
    """
    schedule = profile.workload.pipeline
    rows = [each for each in profile.passes if each.rung == rung]
    played = idle_of(rows, None if schedule is None else schedule.stages)
    if played is None:
        return None
    even, real = (longer * seconds for seconds in played)
    stages = tuple(longer * seconds for seconds in stage_times(profile, rung))
    mean = sum(stages) / len(stages)
    slowest = max(range(len(stages)), key=lambda stage: stages[stage])
    unlike = mean > 0 and stages[slowest] > (1 + _UNLIKE) * mean
    return Bubble(
        schedule=even,
        unequal=real - even,
        late=waited - real,
        slowest_stage=slowest if unlike else None,
        slowest_ratio=stages[slowest] / mean if unlike else None,
        stage_seconds=stages,
    )


def _steps(row: StagePasses) -> _Steps:
    """Microbatches of later steps are numbered on."""
    passes = parse_order(" ".join(row.passes))
    count = 1 + max((batch for _, _, batch in passes), default=0)
    steps = len(row.seconds) // len(row.passes)
    orders = [
        action
        for step in range(steps)
        for action in [
            *((stage, kind, batch + step * count) for stage, kind, batch in passes),
            (-1, _REST, step),
        ]
    ]
    return _Steps(orders, list(row.seconds[: steps * len(row.passes)]), len(row.passes), count)


def _idle_seconds(ranks: Sequence[_Steps]) -> float | None:
    """Seconds of a step, mean over ranks; of all steps but the first, which none goes before."""
    ends = end_times([rank.orders for rank in ranks], [rank.seconds for rank in ranks])
    if ends is None:
        return None
    idles = []
    for rank, found in zip(ranks, ends, strict=True):
        first = rank.per_step
        steps = len(rank.seconds) // rank.per_step
        idles.append((found[-1] - found[first - 1] - sum(rank.seconds[first:])) / (steps - 1))
    return sum(idles) / len(idles)
