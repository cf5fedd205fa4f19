"""How long blocks are, in steps: many rounds in the budget, each block longer than what lies between blocks. Pure.

The machine's pace wanders, so neighbouring steps are alike and distant ones are not: many short rounds tell more in
the same time than few long ones (bench/RESULTS.md, *Archived*). Cold blocks are
longer until storage is seen to read at the rate that it sustains. What a step takes, others measure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from statistics import fmean, variance
from typing import NamedTuple

from stash.core.ladder import Visit
from stash.measure.protocol.orders import FEWEST_ROUNDS
from stash.measure.protocol.wire import register_record

MAX_STEPS = 50
_SECONDS = (0.1, 2.0)
"""Shortest and longest block wanted, in seconds of measured steps."""
_BLOCKS_IN_BUDGET = 400
_LONG_STEP = 0.25
"""Seconds from which a step is measured by itself; of shorter ones a block has two."""
_WORTH = 10
"""A block takes this many times as long as ranks need to agree on what follows it."""
_ACCELERATORS_SETTLE = 2
"""Steps until an accelerator's queue is as full as it usually is."""
SETTLED_STEPS = 10
"""Of a block, from which one more costs little: after a pause the threads of a parallel loop are asleep."""
_AFTER_READING, _LITTLE = 3, 0.1
"""Steps that replays settle for, and what they may take of the time in which batches are read before them: after a
second of that the first step of a block took two to five times as long, and the next one twice."""
_ACCELERATORS_SECONDS = 0.5
"""Its shortest block: where no events tell of its queue, filling that is charged to the block's steps."""
_BURST = 8
_BLOCK_SHARE = 0.8
"""Of the budget that blocks may take: second opinions need the rest."""
_LONGEST_ROUND = 1.5
"""Of the budget, a round of whole bursts: one that is an estimate tells more than many of what was ready before."""
_WAITS = 0.25
"""Of a step, from which it waits for the loader's workers and not only for the first of a burst."""
EXCHANGES_ALONE = 3
"""Of which the first makes connections and does not count."""
_FEWEST_COLD_STEPS = 6
"""Halves of three steps: what a half varies by is known."""
_DECISIVE_COLD_STEPS = 12
"""Of halves that are neither surely alike nor surely different: noise would not let more steps tell."""
_COLD_NOISE = 3.0
"""Standard errors by which halves differ, to be taken for different."""
_AGREE = 0.05
"""Of a step: halves closer than that are alike."""
_COLD_SECONDS = 1.0
"""Seconds in which slices of a tenth of a second average out."""
_ALIKE = 0.1
"""Of a step: halves that are closer than that, beyond the noise, prove that storage goes on as it begins."""
_COLD_SHARE = 0.15
"""Of the budget, that one cold block may take: three of them leave more than half to all the others."""


@register_record
@dataclass(frozen=True)
class BlockSize:
    """Steps of one block: run in first, then measured."""

    settle: int
    steps: int

    @property
    def total_steps(self) -> int:
        return self.settle + self.steps


@register_record
@dataclass(frozen=True)
class Plan:
    """Sizes of a round's blocks."""

    replay: BlockSize
    data: BlockSize
    cold: BlockSize
    round_seconds: float
    """What a round is expected to take, at the pace of the warm-up."""
    alone_rounds: int
    """In how many rounds loaders and exchange are also timed by themselves."""
    expected_seconds: float = 0.0
    """What a round takes with what is not timed: reading what replays, and emptying the loader's queues."""

    def block_size(self, visit: Visit) -> BlockSize:
        """Of a block; what exchanges settles: after a pause TCP starts slowly, and loses packets now and then.

        Ranks leave a barrier together, and by and by as the exchange lets them: a block of one step is all at once
        what they are apart (0.3 of 1.7 s), and settles for one more.
        """
        if visit.reads_data:
            return self.cold if visit.feed == "cold" else self.data
        if visit.scope == "self":
            return self.replay
        return replace(
            self.replay, settle=max(2 if self.replay.steps == 1 else 1, self.replay.settle)
        )

    def settle_until_full(self, busy: float, queue: float) -> int:
        """Steps that data blocks must run in until the queue of the loader's workers is full; no more than now.

        ``queue`` is the steps' worth of batches that they make ahead, ``busy`` the share of their time in which they
        make any. They are always at work until it is full, and slow down what trains beside them: ``queue · busy``
        steps' worth of work at the rate ``1 - busy`` at which they get ahead of training. Where they never do,
        training waits for them and nothing changes.
        """
        until_full = math.ceil(queue * busy / (1 - busy)) if busy < 1 else self.data.settle
        return min(self.data.settle, max(1, self.replay.settle, until_full))

    def set_settle(self, settle: int) -> Plan:
        """Data blocks run in for ``settle`` steps; cold ones longer if they did before."""
        lent = self.cold.settle - self.data.settle
        return replace(
            self,
            data=replace(self.data, settle=settle),
            cold=replace(self.cold, settle=settle + lent),
        )

    def after_reading_alone(self, most: int) -> Plan:
        """Cold blocks settle longer, if ``most`` steps allow: storage may owe them what it did not give meanwhile.

        A disk limited to 20 MB/s passed 5 MB at once in two of six such blocks, and in none of 32 others.
        """
        longer = replace(self.cold, settle=self.cold.settle + _FEWEST_COLD_STEPS // 2)
        return replace(self, cold=longer) if longer.total_steps <= most else self

    def alone_size(self, visit: Visit, workers: int) -> BlockSize:
        """Steps' worth of batches read while no rank trains: the first burst of the workers, and those timed."""
        return BlockSize(max(self.block_size(visit).settle, workers), max(2 * workers, 2))


@register_record
@dataclass(frozen=True)
class StepPace:
    """What a plan follows from, as one rank sees it."""

    step_seconds: float
    workers: int = 0
    batches_per_step: int = 1
    accelerator: bool = False
    reads_ahead: bool = False
    """The first step of a block trains on a batch that was read before it."""
    agreement_seconds: float = 0.0
    """What ranks need to agree, which they do after every block."""
    reading_seconds: float = 0.0
    """What a step waited for its batches."""
    ahead: int = 0
    """Steps' worth of batches that the loader's workers make ahead."""


def slowest_pace(paces: Sequence[StepPace]) -> StepPace:
    """The largest of everything."""
    return StepPace(
        *(max(getattr(pace, field.name) for pace in paces) for field in fields(StepPace))
    )


def plan_blocks(
    visits: Sequence[Visit], pace: StepPace, budget: float, most_steps: int | None = None
) -> Plan:
    """Blocks of about 1/400 of the budget; those that read data are measured in whole bursts of the loader's workers.

    Workers that are started together deliver together. Where three rounds of such blocks do not fit into the budget,
    blocks are as long as fits: at least a step to measure, after one to settle if there is time for it.
    """
    most = most_steps or MAX_STEPS
    shortest = max(
        _ACCELERATORS_SECONDS if pace.accelerator else _SECONDS[0], _WORTH * pace.agreement_seconds
    )
    target = min(max(budget / _BLOCKS_IN_BUDGET, shortest), _SECONDS[1])
    steps = min(
        max(2 if pace.step_seconds < _LONG_STEP else 1, round(target / pace.step_seconds)), most
    )
    burst = max(1, math.ceil(min(pace.workers, _BURST, most) / pace.batches_per_step))
    settle = int(pace.reads_ahead or steps >= SETTLED_STEPS)
    settle = _ACCELERATORS_SETTLE if pace.accelerator else settle
    data = BlockSize(max(settle, burst), max(1, round(steps / burst)) * burst)
    for cold in (cold_size(data, most), data):
        wanted = _estimate_seconds(visits, pace, BlockSize(settle, steps), data, cold)
        if wanted.round_seconds * FEWEST_ROUNDS <= _BLOCK_SHARE * budget:
            return wanted
    fits = int(_BLOCK_SHARE * budget / FEWEST_ROUNDS / (len(visits) * pace.step_seconds))
    fitting = min(max(1, fits - 1), steps)
    data = BlockSize(1 if fits > 1 or pace.workers else min(1, settle), fitting)
    if pace.workers:
        # Of a part of a burst nothing is waited for: rather whole ones, and the shortest of all others. Where steps
        # wait for workers, emptying queues for parts would take as long.
        bursts = BlockSize(burst, burst)
        whole = _estimate_seconds(
            visits, pace, BlockSize(min(1, settle), 1), bursts, bursts, alone_rounds=1
        )
        if (
            pace.reading_seconds > _WAITS * pace.step_seconds
            or whole.round_seconds <= _LONGEST_ROUND * budget
        ):
            return whole
    return _estimate_seconds(
        visits, pace, BlockSize(min(1, settle), fitting), data, data, alone_rounds=1
    )


def _estimate_seconds(
    visits: Sequence[Visit],
    pace: StepPace,
    replay: BlockSize,
    data: BlockSize,
    cold: BlockSize,
    alone_rounds: int = 2,
) -> Plan:
    without_reading = max(0.0, pace.step_seconds - pace.reading_seconds)
    read = data.total_steps + sum(pace.ahead for visit in visits if visit.reads_data)
    reading = read * pace.reading_seconds
    settle = min(_AFTER_READING, int(_LITTLE * reading / without_reading)) if without_reading else 0
    replay = replace(replay, settle=max(settle, replay.settle))
    sizes = Plan(replay, data, cold, 0.0, alone_rounds)
    timed = sum(
        sizes.block_size(visit).total_steps
        * (pace.step_seconds if visit.reads_data else without_reading)
        for visit in visits
    )
    return replace(sizes, round_seconds=timed, expected_seconds=timed + reading)


def cold_size(data: BlockSize, most: int) -> BlockSize:
    """The cold block before anything is known of storage: like any data block, but long enough to have halves.

    ``data`` measures in whole bursts of the workers, as this does; ``most`` is the longest that the job allows.
    """
    longer = BlockSize(data.settle, _round_to_bursts(data, _FEWEST_COLD_STEPS))
    return longer if longer.total_steps <= most else data


def _round_to_bursts(data: BlockSize, steps: float) -> int:
    return data.steps * math.ceil(steps / data.steps)


class Halves(NamedTuple):
    """Mean seconds of a step in the first and in the second half of a block, and the error of their difference.

    Disks, their limits and caches between lend credit after a pause, and pay out in slices of a tenth of a second. So
    a cold block lasts about a second, and is looked at in two halves. If the second is slower beyond the noise, the
    first was read on credit and belongs to the steps that run in. If both are alike, and that is sure, storage lends
    nothing and cold blocks may be as short as others. Credit that outlasts the whole block is not seen.
    """

    first: float
    second: float
    error: float

    @property
    def is_on_credit(self) -> bool:
        """Whether the first was faster than storage goes on to be."""
        return self.second - self.first > max(_COLD_NOISE * self.error, _AGREE * self.second)

    @property
    def is_alike(self) -> bool:
        """Whether they cannot differ by much."""
        return abs(self.second - self.first) + 2 * self.error <= _ALIKE * self.second


def split_halves(steps: Sequence[float]) -> Halves | None:
    """Of a block whose steps took these seconds, one by one; None of one that is too short."""
    half = len(steps) // 2
    if half < 2:
        return None
    first, second = list(steps[:half]), list(steps[-half:])
    # Where credit ran out within the first half, that varies by more than noise.
    return Halves(fmean(first), fmean(second), math.sqrt(2 * variance(second) / half))


def proves_steady(size: BlockSize, data: BlockSize, seen: Halves) -> bool:
    """Whether a cold block of ``size`` shows that one as short as ``data`` reads at the rate that storage keeps."""
    return (
        size.settle == data.settle
        and size.steps * seen.second >= _COLD_SECONDS / 2
        and seen.is_alike
    )


def next_cold_size(
    size: BlockSize, seen: Halves, data: BlockSize, budget: float, most: int | None
) -> BlockSize:
    """The size of the next cold block; the same if this one will do, or if a better one takes too long."""
    # as long as was aimed at, or the pace has changed
    long_enough = size.steps * seen.second >= _COLD_SECONDS / 2
    decided = seen.is_alike or size.steps >= _DECISIVE_COLD_STEPS
    if long_enough and decided and not seen.is_on_credit:
        return size
    lent = size.steps // 2 if seen.is_on_credit else 0
    fewest = _FEWEST_COLD_STEPS if decided or seen.is_on_credit else _DECISIVE_COLD_STEPS
    wanted = BlockSize(
        size.settle + lent, _round_to_bursts(data, max(fewest, _COLD_SECONDS / seen.second))
    )
    fits = wanted.total_steps * seen.second <= _COLD_SHARE * budget and (
        most is None or wanted.total_steps <= most
    )
    return wanted if fits else size


def credit_note(seen: Halves, lengthened: bool) -> str:
    """What a reader of the profile must know of reading on credit."""
    both = (
        f"storage lends credit after a pause: a cold step took {seen.first * 1e3:.3g} ms at first and "
        f"{seen.second * 1e3:.3g} ms a few steps later"
    )
    if lengthened:
        return f"{both}; fetch is at the rate that it keeps"
    return f"{both}; cold blocks cannot be longer in this --budget, so in a long run fetch is larger than it says here"
