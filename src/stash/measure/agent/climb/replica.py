"""How many replicas of the model a job trains: as many as train on samples of their own.

The ranks of a tensor parallel group read the same samples, those of a data-parallel one different samples. So ranks
whose first batches are equal are parts of one replica, unless DistributedDataParallel or a sharding wrapper, which
are made for replicas, says otherwise. Ranks that read nothing are parts of somebody's, and those among which
parameters are divided (DTensors) hold one replica whatever they read.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from stash.measure.agent.data import batches
from stash.measure.agent.data.feeds import Feed
from stash.measure.agent.wraps import replicas
from stash.measure.agent.wraps.sharding import ranks_of_one_replica, sharded
from stash.measure.run.wire import crosses

_LOOKED_AT = 1 << 16
"""Values of each tensor of a batch: enough to tell batches apart."""


@crosses
@dataclass(frozen=True)
class FirstBatch:
    """What one rank tells of the first samples that it trains on."""

    checksum: int | None
    """None if there is no loader, or nothing in its batch to compare."""
    place: tuple[int, ...] | None
    """Among the ranks that the job itself takes for replicas of each other, if it says."""
    together: tuple[int, ...] = ()
    """The ranks among which its parameters are divided, itself included; none if it has whole ones."""


def of_this_rank(feeds: list[Feed], parameters: Iterable[Any] = ()) -> FirstBatch:
    """For the ranks to compare."""
    return FirstBatch(_checksum(feeds), next(_places(), None), ranks_of_one_replica(parameters))


def _places() -> Iterator[tuple[int, ...]]:
    import torch.distributed as dist

    for place in sharded.values():
        yield (dist.get_rank(),) if place is None else place
    for group in replicas.groups():
        yield (group.rank(),)


def count(ranks: list[FirstBatch]) -> int | None:
    """The replicas of a job with these ranks; ``None`` if none of them tells."""
    firsts = _first_of_each_replica(ranks)
    for told in (
        {(each.checksum, each.place) for each in firsts if each.checksum is not None},
        {each.place for each in firsts if each.place is not None},
    ):
        if told:
            return len(told)
    return len(firsts) if len(firsts) < len(ranks) else None


def _first_of_each_replica(ranks: list[FirstBatch]) -> list[FirstBatch]:
    """One rank of those that divide parameters among each other, which reads if any of them does.

    Ranks at different places are replicas of the job's own making, as where experts are divided among them.
    """
    replica_of = list(range(len(ranks)))
    for number, each in enumerate(ranks):
        for other in each.together:
            own, theirs = sorted((replica_of[number], replica_of[other]))
            if own != theirs and ranks[other].place == each.place:
                replica_of = [own if found == theirs else found for found in replica_of]
    firsts: dict[int, FirstBatch] = {}
    for number, each in zip(replica_of, ranks, strict=True):
        if number not in firsts or firsts[number].checksum is None:
            firsts[number] = each
    return list(firsts.values())


def _checksum(feeds: list[Feed]) -> int | None:
    found = [leaf for feed in feeds for leaf in batches.leaves(feed.ring.kept[0])]
    total = 0
    for leaf in found:
        total = zlib.adler32(_some_bytes(leaf), total)
    return total if found else None


def _some_bytes(leaf: Any) -> bytes:
    """The first values of a tensor or array; nothing of a sparse, nested or meta tensor."""
    import torch

    if not batches.is_tensor(leaf):
        return bytes(leaf.reshape(-1)[:_LOOKED_AT].tobytes())
    if leaf.layout is not torch.strided or leaf.is_nested or leaf.is_meta:
        return b""
    return bytes(leaf.detach().flatten()[:_LOOKED_AT].cpu().view(torch.uint8).numpy())
