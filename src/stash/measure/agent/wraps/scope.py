"""The scope of the collectives of this process: world, node or self, and what the script issued under scope world.

One object holds it all; ``wraps.collectives`` asks it at every call, and the climb switches it between blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stash.base.ladder import ScopeName

NODE_CAPABLE = frozenset({
    "all_reduce", "broadcast", "reduce", "barrier", "monitored_barrier", "all_gather", "all_gather_into_tensor",
    "all_gather_single", "all_gather_object", "broadcast_object_list", "reduce_scatter_tensor",
})  # fmt: skip
"""Collectives that can be confined to a node."""


class Scope:
    """How far collectives reach: ``name`` is the scope in force."""

    def __init__(self) -> None:
        self.name: ScopeName = "world"
        self.node_group: Any = None
        """The process group of this rank's node; None if the node is the world, or this rank alone."""
        self.node_ranks: tuple[int, ...] = ()
        """Its global ranks."""
        self.issued: Counter[str] = Counter()
        """Collectives the script called under scope world since this was last cleared, by name."""
        self._untouched = 0

    def set_node(self, group: Any, ranks: tuple[int, ...]) -> None:
        """Tell which process group stands for this rank's node, and its global ranks."""
        self.node_group, self.node_ranks = group, ranks

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

    def beyond_node(self) -> list[str]:
        """Names of collectives the script issued that cannot be confined to a node."""
        return sorted(set(self.issued) - NODE_CAPABLE)


scope = Scope()
"""Of this process."""
