"""Which rings of NVLinks some GPUs of a mesh have: what a machine that is a part of a larger one may get.

A V100 has six links, and eight are joined so that each reaches four others directly. An all-reduce goes around rings
of links; every link carries its rate in each direction. Four GPUs of the eight thus have two rings, one, or none, and
without any their bytes cross PCIe and the CPUs. Which of them a cloud hands out is not published.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import permutations
from typing import NamedTuple

from stash.catalog.shipped import GB, read_rows

_PART_OF = {"p3.8xlarge": "p3.16xlarge", "p3.16xlarge": "p3.16xlarge"}
"""By instance, the mesh whose GPUs it gets."""
Pairs = tuple[tuple[int, int], ...]


class NvlinkMesh(NamedTuple):
    """How many links join two GPUs, by their numbers, the smaller first."""

    links: dict[tuple[int, int], int]
    bytes_per_second: float
    """Of one link in one direction."""
    as_of: str
    source: str

    @property
    def gpus(self) -> int:
        return 1 + max(second for _, second in self.links)

    def rings(self, gpus: Sequence[int]) -> int:
        """The most rings through all of these GPUs that share no link; 0 if they have none."""
        return _most(_cycles(tuple(sorted(gpus))), tuple(sorted(self.links.items())))

    def ring_bytes_per_second(self, gpus: Sequence[int]) -> float:
        """Bus bandwidth that an all-reduce can have over links alone: every ring both ways around."""
        return 2 * self.rings(gpus) * self.bytes_per_second


@lru_cache(maxsize=8)
def mesh_of(instance: str) -> NvlinkMesh | None:
    """The mesh of which an instance has some GPUs or all; ``None`` where it is not known link by link."""
    own = [row for row in read_rows("nvlinks.csv") if row["mesh"] == _PART_OF.get(instance.lower())]
    if not own:
        return None
    links = {(int(row["first"]), int(row["second"])): int(row["links"]) for row in own}
    return NvlinkMesh(links, float(own[0]["link_gb_per_s"]) * GB, own[0]["as_of"], own[0]["source"])


@lru_cache(maxsize=128)
def _cycles(gpus: tuple[int, ...]) -> tuple[Pairs, ...]:
    """Every way around all of them, as the pairs it passes."""
    if len(gpus) < 3:
        return (((gpus[0], gpus[1]),),) if len(gpus) == 2 else ()
    first, *others = gpus
    return tuple(
        tuple((min(pair), max(pair)) for pair in zip((first, *way), (*way, first), strict=True))
        for way in permutations(others)
        if way[0] < way[-1]
    )


def _most(cycles: Sequence[Pairs], links: tuple[tuple[tuple[int, int], int], ...]) -> int:
    """The most of these cycles, each as often as links allow, that no link is used twice by."""
    left = dict(links)
    usable = [cycle for cycle in cycles if all(left.get(pair, 0) for pair in cycle)]
    best = 0
    for number, cycle in enumerate(usable):
        less = {pair: count - (pair in cycle) for pair, count in left.items()}
        best = max(best, 1 + _most(usable[number:], tuple(less.items())))
    return best
