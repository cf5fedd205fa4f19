"""Which nodes a gang gets: the fewest with enough free GPUs, the fullest that fits, and what is free where.

Knows GPUs of nodes and no rates: what a spread gang loses, the simulator asks the matrix.
"""

from __future__ import annotations

from stash.schedule.records import LabCluster

GangPlace = tuple[tuple[int, int], ...]
"""ClusterNode numbers and GPUs there."""


class FreeGpus:
    """Free GPUs of each node, ordered by how many there are, for each type."""

    def __init__(self, cluster: LabCluster) -> None:
        self.kind_of = [cluster.types.index(node.gpu) for node in cluster.nodes]
        self.free = [node.gpus for node in cluster.nodes]
        self.left = [int(count) for count in cluster.counts]
        """Free GPUs of each type."""
        self._largest = [cluster.largest_node(kind) for kind in cluster.types]
        # With a fixed order of nodes the same jobs get the same places; dictionaries keep the order of insertion.
        self._with: list[list[dict[int, None]]] = [[{} for _ in range(size + 1)] for size in self._largest]
        for number, gpus in enumerate(self.free):
            self._with[self.kind_of[number]][gpus][number] = None

    def find(self, kind: int, gpus: int) -> GangPlace | None:
        """Where a gang goes: into the fullest node that has room, else over as few as possible; nothing is taken."""
        if self.left[kind] < gpus:
            return None
        nodes, largest = self._with[kind], self._largest[kind]
        for size in range(gpus, largest + 1):
            if nodes[size]:
                return ((next(iter(nodes[size])), gpus),)
        found, missing = [], gpus
        for size in range(largest, 0, -1):
            for number in nodes[size]:
                part = min(size, missing)
                if part < size and (better := self._exact(kind, part, size)) is not None:
                    number = better  # noqa: PLW2901  # the rest goes where it leaves least behind
                found.append((number, part))
                missing -= part
                if not missing:
                    return tuple(found)
        return None

    def _exact(self, kind: int, part: int, below: int) -> int | None:
        """A node with between ``part`` and ``below`` − 1 free GPUs, the fewest."""
        return next(
            (next(iter(self._with[kind][size])) for size in range(part, below) if self._with[kind][size]), None
        )

    def take(self, place: GangPlace) -> None:
        for number, gpus in place:
            self._change(number, -gpus)

    def give(self, place: GangPlace) -> None:
        for number, gpus in place:
            self._change(number, gpus)

    def _change(self, number: int, by: int) -> None:
        kind, before = self.kind_of[number], self.free[number]
        del self._with[kind][before][number]
        self.free[number] = before + by
        self._with[kind][before + by][number] = None
        self.left[kind] += by
