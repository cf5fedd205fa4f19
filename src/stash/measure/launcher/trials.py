"""Launches of a job with single settings changed, one after the other: how long its steps take, and what it trained.

Each is the job as it was typed but for the change, in a launch of its own, guarded and diagnosed like those of a
profile. What is tried next, and what a difference means, is not known here.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Any

from stash.analysis.disturbance import remove_disturbance
from stash.core.ladder import UNTOUCHED
from stash.core.measured import Block
from stash.core.records.profile import Profile
from stash.measure.launcher.diagnose import Diagnosis
from stash.measure.launcher.gathered import GatheredRun
from stash.measure.launcher.guarded import GuardedFiles
from stash.measure.launcher.launches import Launches
from stash.measure.launcher.measurement import Approach, Measurement
from stash.measure.launcher.neighbours import NeighbouringRuns, TemporaryFolder
from stash.measure.launcher.session import ProfileSession

_SAME_HASHES = {"PYTHONHASHSEED": "0"}
"""Sets of texts have one order in all trials."""
_MAX_NOTES = 3
_MOST_STEPS, _FEW_STEPS = 2_000, 20
"""Of a trial that times steps; and of one whose script ended before a second of them was over."""


@dataclass(frozen=True)
class TrialRun:
    """One launch: the step's time, what it cost to get it, and what each rank recorded."""

    step_seconds: float | None
    """Median of blocks, of the rank that took longest, without what strangers cost; None if it was not measured. The
    mean where epochs began within them, and without the waits for their first batches."""
    doubt_seconds: float = 0.0
    """Half-width of what was subtracted for strangers."""
    steps: int = 0
    elapsed_seconds: float = 0.0
    """Of the whole launch."""
    epoch_seconds: float | None = None
    """Of a step, its share in beginning an epoch: the loader's iterator, its workers, the first batch, as far as no
    other rank was slower meanwhile. ``None`` where no epoch ended."""
    evaluation_seconds: float | None = None
    """Of a step, its share in waiting for the first batches of evaluations; ``None`` where none was seen twice."""
    numbered: tuple[tuple[int, float], ...] = ()
    """Each block's number, and a step's seconds in it."""
    evidence: tuple[Mapping[str, Any], ...] = ()
    """By rank, as ``agent/wraps/trial_changes`` wrote it."""
    allocated_bytes: int | None = None
    resident_bytes: int | None = None
    failure: Diagnosis | None = None
    short: bool = False
    """The script came to its own end before the trial was over."""
    notes: tuple[str, ...] = field(default=())


class Trials:
    """A context in which trials can be run, of the job that ``session`` has profiled and as it was started there.

    ``until``: the monotonic second at which a launch that has not ended is ended. ``bare``: steps may be timed as
    they are without Stash, which then knows less of what other work on the machine costs them.
    """

    def __init__(
        self, session: ProfileSession, *, until: float = math.inf, bare: bool = True
    ) -> None:
        self._measurement, self._until = session.measurement, until
        self._folder_lock = session.folder_lock
        self._number, self._bare = 0, bare
        self._endless = False
        self._most_steps = _MOST_STEPS

    def __enter__(self) -> Trials:
        with ExitStack() as stack:
            neighbours = stack.enter_context(NeighbouringRuns())
            self._folder = stack.enter_context(TemporaryFolder()).path
            locked = stack.enter_context(self._folder_lock).descriptor
            stack.enter_context(GuardedFiles(self._folder, locked))
            self._others = neighbours.list_others
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run_trial(
        self,
        settings: Mapping[str, Any],
        variables: Mapping[str, str],
        seconds: float,
        steps: int | None = None,
    ) -> TrialRun:
        """Run the job with these settings changed and variables set; never raises for what the job does.

        For so many seconds, of which steps are timed as they are without Stash, or for so many ``steps``, all of
        which are recorded.
        """
        most, bare = steps or self._most_steps, steps is None and self._bare
        found = self._launch_trial(settings, variables, seconds, most, bare)
        if steps is None and found.steps >= _FEW_STEPS:
            return found  # of a loop that counts steps, if it is short
        if found.short and not self._endless and found.failure is None:
            self._endless = True  # its own epochs are too short to be measured in
            found = self._launch_trial(settings, variables, seconds, most, bare)
        untimed = found.short and found.step_seconds is None and found.failure is None
        if untimed and steps is None and self._most_steps > _FEW_STEPS:
            self._most_steps = _FEW_STEPS  # its loop counts steps, and those were too few
            found = self._launch_trial(settings, variables, seconds, _FEW_STEPS, bare)
        return found

    def take_turns(
        self,
        rungs: Sequence[Mapping[str, Any]],
        rounds: int,
        settings: Mapping[str, Any],
        variables: Mapping[str, str],
    ) -> tuple[list[dict[int, float]], TrialRun]:
        """Many settings of the loader in one launch, in turns: by round, a step's seconds with each of them.

        ``settings`` and ``variables`` are those of the whole launch.
        Empty where the loader cannot be switched, or the launch failed, which the second value says.
        """
        found = self._launch_trial(
            {**settings, "rungs": [dict(rung) for rung in rungs], "rounds": rounds},
            variables,
            0.0,
            0,
        )
        rows: list[dict[int, float]] = [{} for _ in range(rounds)]
        for number, seconds in found.numbered:
            rows[number // len(rungs)][number % len(rungs)] = seconds
        return [row for row in rows if len(row) == len(rungs)], found

    def _launch_trial(
        self,
        settings: Mapping[str, Any],
        variables: Mapping[str, str],
        seconds: float,
        steps: int,
        bare: bool = False,
    ) -> TrialRun:
        before, began = self._measurement, time.monotonic()
        m = Measurement(
            before.job,
            Approach(before.cluster, before.approach.rungs),
            before.wishes,
            before.host,
            before.gpus,
            launches=self._number,
        )
        launches = Launches(m, self._folder, neighbours=self._others, until=self._until)
        self._number += 1
        orders = replace(
            launches.make_orders(),
            trial=dict(settings),
            trial_seconds=seconds,
            trial_steps=steps,
            trial_bare=bare,
            pin=False,
            rungs=("warm",),
            endless=self._endless,
            first_round=0,
        )
        failure = launches.run_launch(orders, {**_SAME_HASHES, **variables})
        elapsed = time.monotonic() - began
        folder = self._folder / f"launch-{orders.launch}"
        by_rank = {int(path.name.split(".")[1]): path for path in folder.glob("trial.*.json")}
        evidence = tuple(json.loads(by_rank[rank].read_text()) for rank in sorted(by_rank))
        if failure is not None:
            return TrialRun(None, elapsed_seconds=elapsed, evidence=evidence, failure=failure)
        return _summarize_launch(m.gathered, m.profile("trial"), evidence, elapsed)


def _summarize_launch(
    gathered: GatheredRun, profile: Profile, evidence: tuple[Mapping[str, Any], ...], elapsed: float
) -> TrialRun:
    calm = remove_disturbance(profile)
    rounds: dict[int, list[Block]] = {}
    for block in calm.profile.blocks:
        if block.rung == UNTOUCHED.name:
            rounds.setdefault(block.round, []).append(block)
    ranks = max(1, len(profile.ranks))
    whole = {number: blocks for number, blocks in sorted(rounds.items()) if len(blocks) == ranks}
    short = gathered.end != "trial done"
    if not whole:
        return TrialRun(None, elapsed_seconds=elapsed, evidence=evidence, short=short)
    slowest = [
        max(blocks, key=lambda block: block.seconds / block.steps) for blocks in whole.values()
    ]
    taken, beginning = (
        [block.seconds / block.steps for block in slowest],
        _epoch_shares(evidence, ranks),
    )
    doubts = [max(each.doubt for each in found.values()) for found in calm.lost.values() if found]
    memory = [(each.allocated_bytes, each.resident_bytes) for each in profile.memory]
    return TrialRun(
        step_seconds=median(taken) if beginning is None else fmean(taken),
        doubt_seconds=fmean(doubts) if doubts else 0.0,
        steps=sum(block.steps for block in slowest),
        elapsed_seconds=elapsed,
        epoch_seconds=None if beginning is None else _added_seconds(whole.values(), beginning),
        evaluation_seconds=_evaluation_share(evidence),
        numbered=tuple(zip(whole, taken, strict=True)),
        evidence=evidence,
        allocated_bytes=max((allocated for allocated, _ in memory if allocated), default=None),
        resident_bytes=max((resident for _, resident in memory if resident), default=None),
        short=short,
        notes=tuple(gathered.notes[:_MAX_NOTES]),
    )


def _epoch_shares(evidence: Sequence[Mapping[str, Any]], ranks: int) -> list[float] | None:
    """Of a step, each rank's share in beginning its epochs; ``None`` where one's is unknown."""
    shares = [share for rank in evidence if (share := starting_seconds(rank["epochs"])) is not None]
    return shares if len(shares) == ranks else None


def starting_seconds(starts: Sequence[tuple[float, int]]) -> float | None:
    """Of a step, its share in these starts of loops but the first, each its seconds and the steps before it.

    ``None`` where no step lies between them.
    """
    steps = starts[-1][1] - starts[0][1] if starts else 0
    return sum(seconds for seconds, _ in starts[1:]) / steps if steps > 0 else None


def _evaluation_share(evidence: Sequence[Mapping[str, Any]]) -> float | None:
    """Of a step, the share of the slowest rank in beginning its evaluations."""
    shares = [
        [starting_seconds(starts) for starts in rank["evaluations"].values()] for rank in evidence
    ]
    sums = [sum(each for each in rank if each is not None) for rank in shares]
    return max(sums, default=0.0) or None


def _added_seconds(blocks: Iterable[Sequence[Block]], beginning: Sequence[float]) -> float:
    """What beginning epochs adds to the step: who waits longer for its first batch is waited for in the rest."""
    ranks = defaultdict[int, list[float]](list)
    for block in itertools.chain.from_iterable(blocks):
        ranks[block.rank].append(block.seconds / block.steps)
    steps = [fmean(ranks[rank]) for rank in sorted(ranks)]
    return max(map(sum, zip(steps, beginning, strict=True))) - max(steps)
