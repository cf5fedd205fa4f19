"""Which nodes a gang gets: the fewest with enough free GPUs, the fullest that fits, and what is free where.

Knows GPUs of nodes and no rates: what a spread gang loses, the simulator asks the matrix.
"""

from __future__ import annotations

from stash.schedule.records import LabCluster

GangPlace = tuple[tuple[int, int], ...]
"""ClusterNode numbers and GPUs there."""


class FreeGpus:
    """Free GPUs of each node. Of nodes with equally many, who has had them for longest comes first."""

    def __init__(self, cluster: LabCluster) -> None:
        self.kind_of = [cluster.types.index(node.gpu) for node in cluster.nodes]
        self.free = [node.gpus for node in cluster.nodes]
        self.left = [int(count) for count in cluster.counts]
        self._of_kind: list[list[int]] = [[] for _ in cluster.types]
        for number, kind in enumerate(self.kind_of):
            self._of_kind[kind].append(number)
        self._turn = list(range(len(self.free)))
        """The how-manieth change was each node's last."""
        self._changes = len(self.free)

    def find(self, kind: int, gpus: int) -> GangPlace | None:
        """Where a gang goes: into the fullest node that has room, else over as few as possible; nothing is taken."""
        if self.left[kind] < gpus:
            return None
        fullest = sorted(self._of_kind[kind], key=lambda node: (self.free[node], self._turn[node]))
        for node in fullest:
            if self.free[node] >= gpus:
                return ((node, gpus),)
        found = []
        missing = gpus
        for emptiest in sorted(fullest, key=lambda node: -self.free[node]):
            part = min(self.free[emptiest], missing)
            # The rest goes where it leaves least behind.
            better = (node for node in fullest if part <= self.free[node] < self.free[emptiest])
            found.append((next(better, emptiest), part))
            missing -= part
            if not missing:
                break
        return tuple(found)

    def allocate(self, place: GangPlace) -> None:
        for node, gpus in place:
            self._change(node, -gpus)

    def release(self, place: GangPlace) -> None:
        for node, gpus in place:
            self._change(node, gpus)

    def _change(self, node: int, by: int) -> None:
        self.free[node] += by
        self.left[self.kind_of[node]] += by
        self._turn[node] = self._changes
        self._changes += 1
