"""The process groups of a job and what of each lies on one node.

A subgroup of the script's own (Megatron's data-parallel ranks) need not lie on a node or beyond it as a whole: those
of its ranks that share a node go on exchanging under scope *node*. Which groups a job uses is known only from its
steps, so their parts are made when those were seen, by all ranks in one order: ``new_group`` is a collective.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from stash.measure.run.wire import crosses


@dataclass(frozen=True)
class NodePart:
    """What of a process group lies on this rank's node; ``group`` is None where that is this rank alone."""

    group: Any
    ranks: tuple[int, ...]
    """Global, in the order of the whole group."""


@crosses
@dataclass(frozen=True)
class Membership:
    """A process group as its ranks tell each other of it."""

    name: str
    ranks: tuple[int, ...]
    """Global, in the group's order."""
    backend: str


def ranks_of(group: Any) -> tuple[int, ...]:
    """Its global ranks."""
    from torch.distributed import distributed_c10d as c10d

    return tuple(c10d.get_process_group_ranks(group))


def default_group() -> Any:
    """The one of all ranks."""
    from torch.distributed import distributed_c10d as c10d

    return c10d.group.WORLD


def membership(group: Any) -> Membership:
    """What the other ranks must know of a group that this one is in."""
    from torch.distributed import distributed_c10d as c10d

    return Membership(group.group_name, ranks_of(group), str(c10d.get_backend_config(group)))


def parts_on(nodes: Mapping[int, int], groups: Iterable[Membership]) -> list[Membership]:
    """The parts, of two ranks or more, that groups reaching beyond a node fall into; ``nodes``: of each rank.

    Each part has the name of its whole. The order is the same whoever asks first.
    """
    found = []
    for group in sorted(set(groups), key=lambda each: (each.name, each.ranks)):
        homes = list(dict.fromkeys(nodes[rank] for rank in group.ranks))
        cut = [tuple(rank for rank in group.ranks if nodes[rank] == home) for home in homes]
        found += [Membership(group.name, ranks, group.backend) for ranks in cut if 1 < len(ranks) < len(group.ranks)]
    return found


def make(parts: Iterable[Membership], own_rank: int) -> dict[str, NodePart]:
    """Form these groups, with all other ranks; the value holds this rank's, by the names of their wholes."""
    import torch.distributed as dist

    usual, own = membership(default_group()).backend, {}
    for part in parts:
        group = dist.new_group(list(part.ranks), backend=None if part.backend == usual else part.backend)
        if own_rank in part.ranks:
            own[part.name] = NodePart(group, part.ranks)
    return own
