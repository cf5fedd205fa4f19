"""How long blocks are: short enough for many rounds in the budget, long enough for what lies between blocks. Pure.

The machine's pace wanders, so neighbouring steps are alike and distant ones are not: many short rounds tell more in
the same time than few long ones (``bench.schedule_design`` tries it out on a recorded machine).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from stash.base.ladder import Visit
from stash.measure.agent.climb.sizes import BlockSize
from stash.measure.agent.climb.sustained import cold_size
from stash.measure.run.wire import crosses

MOST_STEPS = 50
_SECONDS = (0.1, 2.0)
"""Shortest and longest block wanted, in seconds of measured steps."""
_BLOCKS_IN_BUDGET = 400
_LONG_STEP = 0.25
"""Seconds from which a step is measured by itself; of shorter ones a block has two."""
_WORTH = 10
"""A block takes this many times as long as ranks need to agree on what follows it."""
_ACCELERATORS_SETTLE = 2
"""Steps until an accelerator's queue is as full as it usually is."""
_ACCELERATORS_SECONDS = 0.5
"""Its shortest block: the queue is empty when the clock starts, and filling it is charged to the block's steps."""
_BURST = 8
_FEWEST_ROUNDS = 3
"""As many as an interval needs."""
_SHARE = 0.8
"""Of the budget that blocks may take: second opinions need the rest."""


@crosses
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

    def size(self, visit: Visit) -> BlockSize:
        """Of a block; what exchanges settles: after a pause TCP starts slowly, and loses packets now and then."""
        if visit.reads_data:
            return self.cold if visit.feed == "cold" else self.data
        return self.replay if visit.scope == "self" else replace(self.replay, settle=max(1, self.replay.settle))

    def settle_until_full(self, busy: float, queue: float) -> int:
        """Steps that data blocks must run in until the queue of the loader's workers is full; no more than now.

        ``queue`` is the steps' worth of batches that they make ahead, ``busy`` the share of their time in which they
        make any. They are always at work until it is full, and slow down what trains beside them: ``queue · busy``
        steps' worth of work at the rate ``1 - busy`` at which they get ahead of training. Where they never do,
        training waits for them and nothing changes.
        """
        until_full = math.ceil(queue * busy / (1 - busy)) if busy < 1 else self.data.settle
        return min(self.data.settle, max(1, self.replay.settle, until_full))

    def settling(self, settle: int) -> Plan:
        """Data blocks run in for ``settle`` steps; cold ones longer if they did before."""
        lent = self.cold.settle - self.data.settle
        return replace(self, data=replace(self.data, settle=settle), cold=replace(self.cold, settle=settle + lent))

    def with_cold(self, size: BlockSize) -> Plan:
        """Cold blocks of that size."""
        return replace(self, cold=size)


@crosses
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


def slowest(paces: Sequence[StepPace]) -> StepPace:
    """The largest of everything."""
    return StepPace(*(max(getattr(pace, field.name) for pace in paces) for field in fields(StepPace)))


def plan(visits: Sequence[Visit], pace: StepPace, budget: float, most_steps: int | None = None) -> Plan:
    """Blocks of about 1/400 of the budget; those that read data are measured in whole bursts of the loader's workers.

    Workers that are started together deliver together. Where three rounds of such blocks do not fit into the budget,
    blocks are as long as fits: at least a step to measure, after one to settle if there is time for it.
    """
    most = most_steps or MOST_STEPS
    shortest = max(_ACCELERATORS_SECONDS if pace.accelerator else _SECONDS[0], _WORTH * pace.agreement_seconds)
    target = min(max(budget / _BLOCKS_IN_BUDGET, shortest), _SECONDS[1])
    steps = min(max(2 if pace.step_seconds < _LONG_STEP else 1, round(target / pace.step_seconds)), most)
    burst = max(1, math.ceil(min(pace.workers, _BURST, most) / pace.batches_per_step))
    settle = _ACCELERATORS_SETTLE if pace.accelerator else int(pace.reads_ahead)
    data = BlockSize(max(settle, burst), max(1, round(steps / burst)) * burst)
    for cold in (cold_size(data, most), data):
        wanted = _planned(visits, pace, BlockSize(settle, steps), data, cold)
        if wanted.round_seconds * _FEWEST_ROUNDS <= _SHARE * budget:
            return wanted
    fits = int(_SHARE * budget / _FEWEST_ROUNDS / (len(visits) * pace.step_seconds))
    fitting = min(max(1, fits - 1), steps)
    data = BlockSize(1 if fits > 1 or pace.workers else min(1, settle), fitting)
    return _planned(visits, pace, BlockSize(min(1, settle), fitting), data, data, alone_rounds=1)


def _planned(
    visits: Sequence[Visit],
    pace: StepPace,
    replay: BlockSize,
    data: BlockSize,
    cold: BlockSize,
    alone_rounds: int = 2,
) -> Plan:
    sizes = Plan(replay, data, cold, 0.0, alone_rounds)
    timed = sum(sizes.size(visit).together for visit in visits) * pace.step_seconds
    read = data.together + sum(pace.ahead for visit in visits if visit.reads_data)
    return replace(sizes, round_seconds=timed, expected_seconds=timed + read * pace.reading_seconds)
