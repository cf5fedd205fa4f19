"""The scope of this process's collectives, world, node or self; and what of each group lies on one node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from stash.core.ladder import ScopeName
from stash.measure.protocol.wire import crosses

# Groups ----------------------------------------------------------------------------------------------------
# The process groups of a job and what of each lies on one node.
#
# A subgroup of the script's own (Megatron's data-parallel ranks) need not lie on a node or beyond it as a whole:
# those of its ranks that share a node go on exchanging under scope *node*. Which groups a job uses is known only
# from its steps, so their parts are made when those were seen, by all ranks in one order: ``new_group`` is a
# collective.


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


# Scope -----------------------------------------------------------------------------------------------------
# The scope of the collectives of this process: world, node or self, and what the script issued under scope world.
#
# One object holds it all; ``wraps.collectives`` asks it at every call, and the climb switches it between blocks.
# How a group is cut at a node's edge, ``wraps.groups`` knows.

NODE_CAPABLE = frozenset({
    "all_reduce", "broadcast", "reduce", "barrier", "monitored_barrier", "all_gather", "all_gather_into_tensor",
    "all_gather_single", "all_gather_object", "broadcast_object_list", "reduce_scatter_tensor",
})  # fmt: skip
"""Collectives that can be confined to a node."""
POINT_TO_POINT = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv"})
"""What ranks hand to single others, as the stages of a pipeline do."""


class Scope:
    """How far collectives reach: ``name`` is the scope in force."""

    def __init__(self) -> None:
        self.name: ScopeName = "world"
        self.node_ranks: tuple[int, ...] = ()
        """The global ranks of this rank's node."""
        self.parts: dict[str, NodePart] = {}
        """Of groups that reach beyond this node, by their names: what of them lies on it."""
        self.used: dict[str, Any] = {}
        """Process groups the script's collectives ran over, by name."""
        self.handed_on: set[str] = set()
        """Collectives by which it handed data to single ranks, by name."""
        self.issued: Counter[str] = Counter()
        """Collectives the script called under scope world since counting began, by name."""
        self.sent: Counter[str] = Counter()
        """Bytes that this rank handed to them."""
        self._far: set[str] = set()
        """Of those groups, the ones with ranks on other nodes."""
        self._beyond: set[str] = set()
        """Of those collectives, the ones that ran over such groups."""
        self._untouched = 0

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Collectives called inside are real and not counted: Stash's own, and those that a collective calls."""
        self._untouched += 1
        try:
            yield
        finally:
            self._untouched -= 1

    @property
    def passes(self) -> bool:
        """Whether calls are to be passed on as they are."""
        return self._untouched > 0

    def holds(self, ranks: Collection[int]) -> bool:
        """Whether all those global ranks are on this node."""
        return set(ranks) <= set(self.node_ranks)

    def count(self, name: str, group: Any, size: int) -> None:
        """The script called a collective over ``group`` and handed it ``size`` bytes."""
        self.issued[name] += 1
        if name in POINT_TO_POINT:
            self.handed_on.add(name)
        if group.group_name not in self.used:
            self.used[group.group_name] = group
            if self.reaches(group):
                self._far.add(group.group_name)
        if group.size() > 1:
            self.sent[name] += size
        if group.group_name in self._far:
            self._beyond.add(name)

    def reset_counts(self) -> None:
        """Begin to count again; which groups and collectives were seen is not forgotten."""
        self.issued.clear()
        self.sent.clear()

    def forget(self) -> None:
        """Begin to look again: what was seen so far was no training step."""
        self.reset_counts()
        self.used.clear()
        self.handed_on.clear()
        self._far.clear()
        self._beyond.clear()

    def beyond_node(self) -> list[str]:
        """Names of collectives the script issued to other nodes that cannot be confined to one."""
        return sorted(self._beyond - NODE_CAPABLE)

    def reaches(self, group: Any) -> bool:
        """Whether a group has ranks on other nodes."""
        return not self.holds(ranks_of(group))


scope = Scope()
"""Of this process."""
