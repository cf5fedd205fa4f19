"""What a pipeline's schedule must leave idle, with stages that take equally long and messages that take no time.

A schedule is played as its ranks would: each does its actions in order, and each action waits for what it needs (a
forward pass for the same microbatch's of the stage before, a backward pass for that of the stage behind). A forward
pass takes one unit, a backward pass two, each of its halves one. For GPipe and 1F1B that is the textbook's
(p - 1) / (m + p - 1) (Huang et al., GPipe, 2019; Narayanan et al., PipeDream, 2019); interleaved and zero-bubble
schedules have no formula that holds for all m.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

from stash.core.measured import StagePasses
from stash.core.records.profile import PipelineSchedule

_UNITS = {"F": 1.0, "B": 2.0, "I": 1.0, "W": 1.0}
_ACTION = re.compile(r"(\d+)([FBIW])(\d+)")
EVEN = ("ScheduleGPipe", "Schedule1F1B")
"""Schedules whose order is known for any number of ranks and microbatches."""
Action = tuple[int, str, int]
"""Stage, what, microbatch."""


def idle_share(schedule: PipelineSchedule) -> float | None:
    """Of the time of a pipeline's passes, what its ranks must idle on average; ``None`` if the order is unknown."""
    if schedule.name in EVEN:
        return (schedule.ranks - 1) / (schedule.microbatches + schedule.ranks - 1)
    if len(schedule.orders) != schedule.ranks:
        return None
    return simulate_idle_share([parse_order(row) for row in schedule.orders])


def order_of(name: str, rank: int, ranks: int, microbatches: int) -> str:
    """What a rank of a schedule in ``EVEN`` does, a stage each (``torch.distributed.pipelining.schedules``)."""
    ahead = microbatches if name == "ScheduleGPipe" else min(microbatches, ranks - rank)
    order = [f"{rank}F{batch}" for batch in range(ahead)]
    for batch in range(microbatches):
        order += [f"{rank}B{batch}"] + (
            [f"{rank}F{ahead + batch}"] if ahead + batch < microbatches else []
        )
    return " ".join(order)


def parse_order(order: str) -> list[Action]:
    """A rank's passes in their order; what it sends, receives and gathers in between is left out."""
    return [(int(stage), kind, int(batch)) for stage, kind, batch in _ACTION.findall(order)]


def step_passes(row: StagePasses) -> list[Action]:
    """Those of one step."""
    return parse_order(" ".join(row.passes))


def simulate_idle_share(orders: Sequence[Sequence[Action]]) -> float | None:
    """The share in which ranks are idle; ``None`` of orders that wait for each other for ever, or hold nothing."""
    seconds = [[_UNITS[kind] for _, kind, _ in order] for order in orders]
    ends = end_times(orders, seconds)
    busy = sum(map(sum, seconds))
    if not ends or not busy:
        return None
    return 1 - busy / (len(orders) * max(end[-1] for end in ends if end))


def end_times(
    orders: Sequence[Sequence[Action]], seconds: Sequence[Sequence[float]]
) -> list[list[float]] | None:
    """When each rank's actions end that take so long; ``None`` of orders that wait for each other for ever.

    An action that is no pass waits for nothing but the one before it.
    """
    last = max((stage for order in orders for stage, _, _ in order), default=-1)
    ended: dict[Action, float] = {}
    ends: list[list[float]] = [[0.0] for _ in orders]
    has_moved = True
    while has_moved:
        has_moved = False
        for order, took, own in zip(orders, seconds, ends, strict=True):
            for action, lasts in list(zip(order, took, strict=True))[len(own) - 1 :]:
                needs = _needed_actions(action, last, ended)
                if not ended.keys() >= needs:
                    break
                own.append(max(own[-1], *(ended[need] for need in needs), 0.0) + lasts)
                ended[action] = own[-1]
                has_moved = True
    is_done = all(len(own) > len(order) for own, order in zip(ends, orders, strict=True))
    return [own[1:] for own in ends] if is_done else None


def _needed_actions(action: Action, last: int, ended: Container[Action]) -> set[Action]:
    """What has to end before an action begins."""
    stage, kind, batch = action
    if kind == "F":
        return {(stage - 1, "F", batch)} if stage > 0 else set()
    if kind == "W":
        return {(stage, "I", batch)}
    needs = {(stage, "F", batch)} if kind in _UNITS else set()
    if kind in _UNITS and stage != last:
        half = (stage + 1, "I", batch)
        needs.add(half if half in ended else (stage + 1, "B", batch))
    return needs
