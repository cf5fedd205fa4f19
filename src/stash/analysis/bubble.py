"""A pipeline's bubble: what its stages stand still because no microbatch is there for them, and why.

The passes that were timed are played again, in each rank's own order, with messages that take no time
(``pipeline_schedule``). What ranks idle then, the stages' own times make them; what they would idle if passes of a
kind took equally long everywhere, the schedule makes them; what they really waited beyond that came late: over the
link, or from a peer that something held up. No common clock is needed. Steps are played one after the other, since
what ranks do outside of passes may hide in each other's idle time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, cycle
from statistics import fmean

from stash.analysis.pipeline_schedule import Action, end_times, step_passes
from stash.core.grouping import group_by
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
    played = [_play_pipeline(pipeline) for pipeline in group_pipelines(_join_rounds(rows), stages)]
    found = [idle for idle in played if idle is not None]
    if not found:
        return None
    return fmean(even for even, _ in found), fmean(real for _, real in found)


def _play_pipeline(pipeline: Sequence[StagePasses]) -> tuple[float, float] | None:
    """The same of ranks that hold one pipeline together; microbatches of later steps are numbered on."""
    # two steps at least: a single one goes before itself
    times = 2 if len(pipeline[0].seconds) == len(pipeline[0].passes) else 1
    seconds = [row.seconds * times for row in pipeline]
    orders: list[list[Action]] = []
    for row, took in zip(pipeline, seconds, strict=True):
        passes = step_passes(row)
        count = 1 + max((batch for _, _, batch in passes), default=0)
        order: list[Action] = []
        for step in range(len(took) // len(row.passes)):
            order += [(stage, kind, batch + step * count) for stage, kind, batch in passes]
            order.append((-1, _REST, step))
        orders.append(order)
    # passes of a kind that take equally long everywhere, on average as long as they do
    by_kind: dict[str, list[float]] = defaultdict(list)
    for (_, kind, _), took_one in zip(chain(*orders), chain(*seconds), strict=True):
        by_kind[kind].append(took_one)
    mean = {kind: fmean(each) for kind, each in by_kind.items()}
    even = [[mean[kind] for _, kind, _ in order] for order in orders]
    idles = []
    for played in (even, seconds):
        ends = end_times(orders, played)
        if ends is None:
            return None
        # of all steps but the first, which none goes before
        idles.append(
            fmean(
                (end[-1] - end[first - 1] - sum(took[first:])) / (len(took) // first - 1)
                for end, took, first in zip(
                    ends, played, (len(row.passes) for row in pipeline), strict=True
                )
            )
        )
    return idles[0], idles[1]


def _join_rounds(rows: Sequence[StagePasses]) -> list[StagePasses]:
    """One row for each rank, with the steps of all rounds that every rank has some of, as many as all have."""
    everyone = {row.rank for row in rows}
    joined: dict[int, StagePasses] = {}
    for of_round in group_by(
        sorted(rows, key=lambda row: row.round), lambda row: row.round
    ).values():
        if {row.rank for row in of_round} != everyone:
            continue
        steps = min(len(row.seconds) // len(row.passes) for row in of_round)
        for row in of_round:
            before = joined.get(row.rank, replace(row, seconds=()))
            if before.passes != row.passes:
                return []
            seconds = before.seconds + row.seconds[: steps * len(row.passes)]
            joined[row.rank] = replace(row, seconds=seconds)
    return list(joined.values())


def group_pipelines(
    rows: Sequence[StagePasses], stages: int | None = None
) -> list[list[StagePasses]]:
    """Ranks that hold one pipeline together: of those with the same stages each belongs to one, in their order.

    None if rows of a stage are missing; ``stages`` is how many there are, if that is known.
    """
    in_order = sorted(rows, key=lambda row: row.rank)
    by_stages = group_by(
        in_order, lambda row: tuple(sorted({stage for stage, _, _ in step_passes(row)}))
    )
    held = sorted(chain(*by_stages))
    if held != list(range(len(held) if stages is None else stages)):
        return []
    return [list(pipeline) for pipeline in zip(*by_stages.values(), strict=False)]


def stage_times(profile: Profile, rung: str) -> tuple[float, ...]:
    """Seconds of a step of each stage's passes, means over ranks and rounds."""
    sums: dict[int, list[float]] = defaultdict(list)
    for row in profile.passes:
        if row.rung == rung:
            took: dict[int, float] = defaultdict(float)
            for (stage, _, _), seconds in zip(
                cycle([*step_passes(row), (-1, _REST, 0)]), row.seconds, strict=False
            ):
                took[stage] += seconds * len(row.passes) / len(row.seconds)
            for stage in took.keys() - {-1}:
                sums[stage].append(took[stage])
    return tuple(fmean(sums[stage]) for stage in sorted(sums))


def estimate_bubble(
    profile: Profile, rung: str, waited: float, longer: float = 1.0
) -> Bubble | None:
    """Of the steps under ``rung``, in which ranks ``waited`` for other stages on average; ``None`` if unknown.

    ``longer``: times the passes that are known, of which they were.
    """
    schedule = profile.workload.pipeline
    rows = [row for row in profile.passes if row.rung == rung]
    played = idle_of(rows, None if schedule is None else schedule.stages)
    if played is None:
        return None
    even, real = (longer * seconds for seconds in played)
    stages = tuple(longer * seconds for seconds in stage_times(profile, rung))
    slowest = max(stages)
    is_unlike = slowest > (1 + _UNLIKE) * fmean(stages)
    return Bubble(
        schedule=even,
        unequal=real - even,
        late=waited - real,
        slowest_stage=stages.index(slowest) if is_unlike else None,
        slowest_ratio=slowest / fmean(stages) if is_unlike else None,
        stage_seconds=stages,
    )
