"""The scope of the collectives of this process: world, node or self, and what the script issued under scope world.

One object holds it all; ``wraps.collectives`` asks it at every call, and the climb switches it between blocks. How a
group is cut at a node's edge, ``wraps.groups`` knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from stash.base.ladder import ScopeName
from stash.measure.agent.wraps.groups import NodePart, ranks_of

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

    def count_anew(self) -> None:
        """Begin to count again; which groups and collectives were seen is not forgotten."""
        self.issued.clear()
        self.sent.clear()

    def forget(self) -> None:
        """Begin to look again: what was seen so far was no training step."""
        self.count_anew()
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
