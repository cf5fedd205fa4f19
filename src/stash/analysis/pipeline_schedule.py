"""What a pipeline's schedule must leave idle, with stages that take equally long and messages that take no time.

A schedule is played as its ranks would: each does its actions in order, and each action waits for what it needs (a
forward pass for the same microbatch's of the stage before, a backward pass for that of the stage behind). A forward
pass takes one unit, a backward pass two, each of its halves one. For GPipe and 1F1B that is the textbook's
(p - 1) / (m + p - 1) (Huang et al., GPipe, 2019; Narayanan et al., PipeDream, 2019); interleaved and zero-bubble
schedules have no formula that holds for all m.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

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


def simulate_idle_share(orders: Sequence[Sequence[Action]]) -> float | None:
    """The share in which ranks are idle; ``None`` of orders that wait for each other for ever, or hold nothing."""
    seconds = [[_UNITS[kind] for _, kind, _ in order] for order in orders]
    ends = end_times(orders, seconds)
    busy = sum(map(sum, seconds))
    return (
        1 - busy / (len(orders) * max(each[-1] for each in ends if each)) if ends and busy else None
    )


def end_times(
    orders: Sequence[Sequence[Action]], seconds: Sequence[Sequence[float]]
) -> list[list[float]] | None:
    """When each rank's actions end that take so long; ``None`` of orders that wait for each other for ever.

    An action that is no pass waits for nothing but the one before it.
    """
    last = max((stage for order in orders for stage, _, _ in order), default=-1)
    ended: dict[Action, float] = {}
    ends: list[list[float]] = [[] for _ in orders]
    while any(len(found) < len(order) for found, order in zip(ends, orders, strict=True)):
        moved = False
        for order, took, found in zip(orders, seconds, ends, strict=True):
            while len(found) < len(order):
                action = order[len(found)]
                ready = _ready_seconds(action, last, ended)
                if ready is None:
                    break
                now = max(found[-1] if found else 0.0, ready) + took[len(found)]
                found.append(now)
                ended[action] = now
                moved = True
        if not moved:
            return None
    return ends


def _ready_seconds(action: Action, last: int, ended: dict[Action, float]) -> float | None:
    """When what an action needs is done; ``None``: not yet."""
    stage, kind, batch = action
    if kind not in _UNITS:
        return 0.0
    if kind == "F":
        return 0.0 if stage == 0 else ended.get((stage - 1, "F", batch))
    if kind == "W":
        return ended.get((stage, "I", batch))
    own = ended.get((stage, "F", batch))
    behind = (
        own
        if stage == last
        else ended.get((stage + 1, "B", batch), ended.get((stage + 1, "I", batch)))
    )
    return None if own is None or behind is None else max(own, behind)
