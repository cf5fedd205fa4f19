"""Noticing models whose parameters, gradients or optimizer states are sharded over the ranks: FSDP, DeepSpeed.

What such a step gathers belongs to the step: it cannot be switched off, only left out by starting the job alone.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

sharded: dict[str, tuple[int, ...] | None] = {}
"""Names of the wrappers the script used, with this rank's place among the replicas; None if that is all ranks."""


def watch_fsdp(module: ModuleType) -> None:
    """FullyShardedDataParallel."""
    cls = module.FullyShardedDataParallel
    init = cls.__init__

    @functools.wraps(init)
    def noticing_init(self: Any, *args: Any, **kwargs: Any) -> None:
        group: Any = kwargs.get("process_group")
        sharded["FullyShardedDataParallel"] = (group.rank(),) if hasattr(group, "rank") else None
        init(self, *args, **kwargs)

    cls.__init__ = noticing_init


def watch_fully_shard(module: ModuleType) -> None:
    """FSDP2's ``fully_shard``."""
    original = module.fully_shard
    if getattr(original, "noticed_by_stash", False):
        return

    @functools.wraps(original)
    def noticing(*args: Any, **kwargs: Any) -> Any:
        mesh = kwargs.get("mesh")  # of the replicas only, where others share them
        sharded["fully_shard"] = None if mesh is None else tuple(mesh.get_coordinate())
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
