"""How busy the machines were under each rung: cores, other tenants, GPUs, network and disk.

Means over the kept rounds of what every block recorded of its host. Counters of a host are taken once a node, so that
ranks beside each other do not count them twice. Says nothing of what would be a lot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from stash.base.records import Block, Profile, Record
from stash.derive.stalls.step_times import StepTimes

Resource = Literal["cpu", "steal", "gpu", "network", "disk"]
_READINGS: Mapping[Resource, Callable[[Block], float | None]] = {
    "cpu": lambda block: block.cpu,
    "steal": lambda block: block.steal,
    "gpu": lambda block: block.gpu,
    "network": lambda block: _pace(block.network_bytes, block.seconds),
    "disk": lambda block: _pace(block.disk_bytes, block.seconds),
}


class Use(Record):
    """Of one resource under one rung, a node: a fraction, or bytes per second of ``network`` and ``disk``."""

    rung: str
    resource: Resource
    amount: float
    """Mean over rounds."""
    least: float
    most: float
    """Of the rounds: what a machine does varies by more than chance, so a range says more than an interval."""


def usage(profile: Profile, kept: StepTimes) -> tuple[Use, ...]:
    """By resource, then rung in ladder order; what no block recorded is left out."""
    node = {rank.rank: rank.node for rank in profile.ranks}
    blocks: dict[str, list[Block]] = {name: [] for name in kept.rungs}
    rounds = set(kept.rounds)
    for block in profile.blocks:
        if block.rung in blocks and block.round in rounds and block.seconds > 0:
            blocks[block.rung].append(block)
    found = (
        (name, resource, _per_round(blocks[name], read, node))
        for resource, read in _READINGS.items()
        for name in kept.rungs
    )
    return tuple(
        Use(rung=name, resource=resource, amount=_mean(per), least=min(per), most=max(per))
        for name, resource, per in found
        if per
    )


def _per_round(blocks: list[Block], read: Callable[[Block], float | None], node: Mapping[int, int]) -> list[float]:
    """One value a round: the mean over nodes of the mean over each node's ranks."""
    rounds: dict[int, dict[int, list[float]]] = {}
    for block in blocks:
        value = read(block)
        if value is not None:
            rounds.setdefault(block.round, {}).setdefault(node.get(block.rank, 0), []).append(value)
    return [_mean([_mean(of_node) for of_node in nodes.values()]) for nodes in rounds.values()]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _pace(count: int | None, seconds: float) -> float | None:
    return None if count is None else count / seconds
