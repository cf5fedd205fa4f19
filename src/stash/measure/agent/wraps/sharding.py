"""Models that are divided among ranks, and how many replicas of its model a job trains all in all.

Wrappers shard what each of several replicas has (FSDP, DeepSpeed); what they gather belongs to the step, and can only
be left out by starting the job alone. Ranks of a tensor-parallel group hold one replica together (DTensors), and read
the same samples. So ranks whose first batches are equal are parts of one replica, unless DistributedDataParallel or a
sharding wrapper, which are made for replicas, says otherwise; ranks that read nothing are parts of some other rank's.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from stash.measure.agent import private, script
from stash.measure.agent.data import batches
from stash.measure.agent.data.feeds import Feed
from stash.measure.agent.script import Function
from stash.measure.agent.wraps import replicas
from stash.measure.agent.wraps.groups import ranks_of
from stash.measure.protocol.wire import register_record

_LOOKED_AT = 1 << 16
"""Values of each tensor of a batch: enough to tell batches apart."""
sharded: dict[str, tuple[int, ...] | None] = {}
"""Names of the wrappers the script used, with this rank's place among the replicas; None if that is all ranks."""
_of_replicas: set[str] = set()
"""Names of process groups that wrappers shard over whose ranks are replicas."""


def watch_fsdp(module: ModuleType) -> None:
    """FullyShardedDataParallel."""

    def made(self: Any, module: Any, process_group: Any = None, *args: Any, **kwargs: Any) -> None:
        is_group = hasattr(process_group, "rank")
        sharded["FullyShardedDataParallel"] = (
            (process_group.rank(),) if is_group else _mesh_place(kwargs.get("device_mesh"))
        )

    script.after(module.FullyShardedDataParallel, "__init__", made)


def watch_fully_shard(module: ModuleType) -> None:
    """FSDP2's ``fully_shard``."""
    if not hasattr(module.fully_shard, "noticed_by_stash"):
        script.surround(module, "fully_shard", _note_sharding)
        script.put(module.fully_shard, noticed_by_stash=True)


def _note_sharding(shard: Function, *args: Any, **kwargs: Any) -> Any:
    sharded["fully_shard"] = _mesh_place(kwargs.get("mesh"), kwargs.get("dp_mesh_dims"))
    return shard(*args, **kwargs)


def watch_deepspeed(module: ModuleType) -> None:
    """DeepSpeed's engine, from the first stage of ZeRO on."""

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        stage = int(self.zero_optimization_stage())
        if stage > 0:
            sharded[f"DeepSpeed ZeRO stage {stage}"] = None

    script.after(module.DeepSpeedEngine, "__init__", made)


def _mesh_place(mesh: Any, dimensions: Any = None) -> tuple[int, ...] | None:
    """This rank's place in a mesh of replicas; ``dimensions`` names its own, where others share the mesh."""
    if mesh is None:
        return None
    given = [getattr(dimensions, name, None) or () for name in ("shard", "replicate")]
    names = {name for value in given for name in ((value,) if isinstance(value, str) else value)}
    own = [at for at in range(mesh.ndim) if not names or mesh.mesh_dim_names[at] in names]
    _of_replicas.update(mesh.get_group(at).group_name for at in own)
    return tuple(mesh.get_coordinate()[at] for at in own)


def ranks_of_one_replica(parameters: Iterable[Any]) -> tuple[int, ...]:
    """The global ranks over which these parameters are divided, this one among them; none if they are whole.

    DTensors say so. What fully_shard divides among replicas, which it makes DTensors of too, does not count; nor does
    anything where a wrapper takes all ranks for replicas.
    """
    if None in sharded.values():
        return ()
    ranks: set[int] = set()
    for parameter in parameters:
        mesh: Any = getattr(parameter, "device_mesh", None)
        placements = () if mesh is None else getattr(parameter, "placements", ())
        for dimension, placement in enumerate(placements):
            if placement.is_shard() and mesh.size(dimension) > 1:
                group = mesh.get_group(dimension)
                if group.group_name not in _of_replicas:
                    ranks.update(ranks_of(group))
    return tuple(sorted(ranks))


@register_record
@dataclass(frozen=True)
class FirstBatch:
    """What one rank knows of the first samples that it trains on."""

    checksum: int | None
    """None if there is no loader, or nothing in its batch to compare."""
    place: tuple[int, ...] | None
    """Among the ranks that the job itself takes for replicas of each other, if it says."""
    together: tuple[int, ...] = ()
    """The ranks among which its parameters are divided, itself included; none if it has whole ones."""


def describe_first_batch(feeds: list[Feed], parameters: Iterable[Any] = ()) -> FirstBatch:
    """For the ranks to compare."""
    import torch.distributed as dist

    checksum = None
    for feed in feeds:
        for leaf in batches.iter_leaves(feed.ring.batches[0]):
            checksum = zlib.adler32(_some_bytes(leaf), checksum or 0)
    places = [(dist.get_rank(),) if place is None else place for place in sharded.values()]
    places += [(group.rank(),) for group in replicas.list_groups()]
    return FirstBatch(checksum, next(iter(places), None), ranks_of_one_replica(parameters))


def count_replicas(ranks: list[FirstBatch]) -> int | None:
    """The replicas of a job with these ranks; ``None`` if none of them knows."""
    firsts = _first_of_each_replica(ranks)
    by_data = {(each.checksum, each.place) for each in firsts if each.checksum is not None}
    by_place = {each.place for each in firsts if each.place is not None}
    parted = len(firsts) if len(firsts) < len(ranks) else None
    return len(by_data) or len(by_place) or parted


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


def _some_bytes(leaf: Any) -> bytes:
    """The first values of a tensor or array; nothing of a sparse, nested or meta tensor."""
    import torch

    if not batches.is_tensor(leaf):
        return bytes(leaf.reshape(-1)[:_LOOKED_AT].tobytes())
    if leaf.layout is not torch.strided or leaf.is_nested or leaf.is_meta:
        return b""
    # a class may refuse to be cut, as MONAI's does where files differ in what they say
    with private.disable_subclasses():
        return bytes(leaf.detach().flatten()[:_LOOKED_AT].cpu().view(torch.uint8).numpy())
