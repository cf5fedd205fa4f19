"""Noticing models that are divided among ranks: by replicas that shard what each has (FSDP, DeepSpeed), or by ranks
that hold one replica together (tensor parallelism by DTensor).

What the former gather belongs to the step: it cannot be switched off, only left out by starting the job alone. A rank
of the latter has nothing to do alone.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from stash.measure.agent.wraps.groups import ranks_of

sharded: dict[str, tuple[int, ...] | None] = {}
"""Names of the wrappers the script used, with this rank's place among the replicas; None if that is all ranks."""
_of_replicas: set[str] = set()
"""Names of process groups that wrappers shard over whose ranks are replicas."""


def ranks_of_one_replica(parameters: Iterable[Any]) -> tuple[int, ...]:
    """The global ranks over which these parameters are divided, this one among them; none if they are whole.

    DTensors say so. What fully_shard divides among replicas, which it makes DTensors of too, does not count; nor does
    anything where a wrapper takes all ranks for replicas.
    """
    if None in sharded.values():
        return ()
    groups: dict[str, Any] = {}
    for parameter in parameters:
        mesh: Any = getattr(parameter, "device_mesh", None)
        for dimension, placement in enumerate(getattr(parameter, "placements", ()) if mesh is not None else ()):
            if placement.is_shard() and mesh.size(dimension) > 1:
                group = mesh.get_group(dimension)
                groups[group.group_name] = group
    return tuple(
        sorted({rank for name, group in groups.items() if name not in _of_replicas for rank in ranks_of(group)})
    )


def _place(mesh: Any, dimensions: Any = None) -> tuple[int, ...] | None:
    """This rank's place in a mesh of replicas; ``dimensions`` names its own, where others share the mesh."""
    if mesh is None:
        return None
    told = [getattr(dimensions, name, None) or () for name in ("shard", "replicate")]
    names = {name for value in told for name in ((value,) if isinstance(value, str) else value)}
    own = [at for at in range(mesh.ndim) if not names or mesh.mesh_dim_names[at] in names]
    _of_replicas.update(mesh.get_group(at).group_name for at in own)
    return tuple(mesh.get_coordinate()[at] for at in own)


def watch_fsdp(module: ModuleType) -> None:
    """FullyShardedDataParallel."""
    cls = module.FullyShardedDataParallel
    init = cls.__init__

    @functools.wraps(init)
    def noticing_init(self: Any, *args: Any, **kwargs: Any) -> None:
        group: Any = kwargs.get("process_group")
        place = (group.rank(),) if hasattr(group, "rank") else _place(kwargs.get("device_mesh"))
        sharded["FullyShardedDataParallel"] = place
        init(self, *args, **kwargs)

    cls.__init__ = noticing_init


def watch_fully_shard(module: ModuleType) -> None:
    """FSDP2's ``fully_shard``."""
    original = module.fully_shard
    if getattr(original, "noticed_by_stash", False):
        return

    @functools.wraps(original)
    def noticing(*args: Any, **kwargs: Any) -> Any:
        sharded["fully_shard"] = _place(kwargs.get("mesh"), kwargs.get("dp_mesh_dims"))
        return original(*args, **kwargs)

    noticing.noticed_by_stash = True  # type: ignore[attr-defined]
    module.fully_shard = noticing  # type: ignore[attr-defined]


def watch_deepspeed(module: ModuleType) -> None:
    """DeepSpeed's engine, from the first stage of ZeRO on."""
    cls = module.DeepSpeedEngine
    init = cls.__init__

    @functools.wraps(init)
    def noticing_init(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        stage = int(self.zero_optimization_stage())
        if stage > 0:
            sharded[f"DeepSpeed ZeRO stage {stage}"] = None

    cls.__init__ = noticing_init
