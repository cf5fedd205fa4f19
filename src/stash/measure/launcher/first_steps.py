"""A job's first steps, as they were typed, as rounds: what there is of one that fails, or ends, before its first round.

They are cut into parts that stand for rounds of a rung that reads data. What steps wait for their loaders is in them,
and the ledger tells it apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

from stash.core.ladder import UNTOUCHED
from stash.core.measured import Block

RUNG = "warm"
_STEPS_OF_ROUND, _FEWEST_ROUNDS, _MOST_ROUNDS = 3, 3, 10
_SHARED_OUT = (
    "interrupted_seconds",
    "network_bytes",
    "disk_bytes",
    "cpu_seconds",
    "helper_delay_seconds",
    "helper_cpu_seconds",
    "helper_window_cpu_seconds",
    "thread_cpu_seconds",
    "machine_cpu_seconds",
    "worker_cpu_seconds",
    "worker_delay_seconds",
    "throttled_seconds",
    "switches",
)
"""What a block adds up to, of which each of its steps has an equal part for all that is known."""


def cut_into_rounds(blocks: Iterable[Block]) -> list[Block]:
    """The first such block of each rank as blocks of several rounds; none where they have too few steps."""
    of_ranks: dict[int, Block] = {}
    for block in blocks:
        if block.rung == UNTOUCHED.name:
            of_ranks.setdefault(block.rank, block)
    first = of_ranks.values()
    fewest = min((block.steps for block in first), default=0)
    rounds = min(_MOST_ROUNDS, fewest // _STEPS_OF_ROUND)
    if rounds < _FEWEST_ROUNDS:
        return []
    size = fewest // rounds
    return [_take_part(block, number, size) for number in range(rounds) for block in first]


def _take_part(block: Block, number: int, size: int) -> Block:
    part = slice(number * size, (number + 1) * size)
    by_step: dict[str, Any] = {
        field.name: getattr(block, field.name)[part]
        for field in fields(block)
        if field.name.startswith("step_") or field.name == "host_leads"
    }
    share = size / block.steps
    shared: dict[str, Any] = {name: _scale(getattr(block, name), share) for name in _SHARED_OUT}
    return replace(
        block,
        round=number,
        rung=RUNG,
        steps=size,
        seconds=_sum(by_step["step_seconds"], block.seconds * share),
        samples=None if block.samples is None else round(_sum(by_step["step_samples"], 0)),
        wait_seconds=None,  # which would be said to be of files in memory
        loop_delays=tuple(share * each for each in block.loop_delays),
        stage_seconds={name: share * each for name, each in block.stage_seconds.items()},
        group_waits={name: share * each for name, each in block.group_waits.items()},
        group_under_way={name: share * each for name, each in block.group_under_way.items()},
        phase_seconds={name: share * each for name, each in block.phase_seconds.items()},
        received_rows={},
        **{**by_step, "step_waits": ()},
        **shared,
    )


def _scale(whole: float | None, share: float) -> float | None:
    if whole is None:
        return None
    return round(whole * share) if isinstance(whole, int) else whole * share


def _sum(parts: Sequence[float], unknown: float) -> float:
    return sum(parts) if parts else unknown
