"""How long blocks are: long enough to be measured well, short enough for several rounds in the budget. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from stash.base.ladder import Visit
from stash.measure.agent.climb.sizes import BlockSize
from stash.measure.agent.climb.sustained import cold_size

BLOCK_SECONDS = (0.2, 2.0)
"""Shortest and longest block wanted, in seconds of measured steps."""
MOST_STEPS = 50
_BLOCKS_IN_BUDGET = 120
_BURST = 8
_FEWEST_ROUNDS = 3
"""As many as an interval needs."""
_SHARE = 0.8
"""Of the budget that blocks may take: warm-up and second opinions need the rest."""


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

    def size(self, visit: Visit) -> BlockSize:
        if visit.feed == "cold":
            return self.cold
        return self.data if visit.reads_data else self.replay


@dataclass(frozen=True)
class StepPace:
    """What a plan follows from, of the slowest rank."""

    step_seconds: float
    workers: int = 0
    batches_per_step: int = 1
    accelerator: bool = False


def plan(visits: Sequence[Visit], pace: StepPace, budget: float, most_steps: int | None = None) -> Plan:
    """Blocks of about 1/120 of the budget, measured in whole bursts of the loader's workers.

    Workers that are started together deliver together. Where three rounds of such blocks do not fit into the budget,
    blocks are as long as fits: a step to settle, and at least one to measure.
    """
    most = most_steps or MOST_STEPS
    target = min(max(budget / _BLOCKS_IN_BUDGET, BLOCK_SECONDS[0]), BLOCK_SECONDS[1])
    steps = min(max(2 if pace.step_seconds < 0.25 else 1, round(target / pace.step_seconds)), most)
    settle = 2 if pace.accelerator else 1
    burst = max(1, math.ceil(min(pace.workers, _BURST, most) / pace.batches_per_step))
    data = BlockSize(max(settle, burst), max(1, round(steps / burst)) * burst)
    for cold in (cold_size(data, most), data):
        wanted = _planned(visits, pace, BlockSize(settle, steps), data, cold)
        if wanted.round_seconds * _FEWEST_ROUNDS <= _SHARE * budget:
            return wanted
    fits = int(_SHARE * budget / _FEWEST_ROUNDS / (len(visits) * pace.step_seconds))
    short = BlockSize(1, min(max(1, fits - 1), steps))
    return _planned(visits, pace, short, short, short, alone_rounds=1)


def _planned(
    visits: Sequence[Visit],
    pace: StepPace,
    replay: BlockSize,
    data: BlockSize,
    cold: BlockSize,
    alone_rounds: int = 2,
) -> Plan:
    sizes = Plan(replay, data, cold, 0.0, alone_rounds)
    return replace(sizes, round_seconds=sum(sizes.size(visit).together for visit in visits) * pace.step_seconds)
