"""How the job divides its model among ranks, found and not asked for: meshes of devices, and schedules of pipelines.

PyTorch's meshes and schedules are looked up among the objects that are alive, once, on the leader; Megatron's groups
are asked of its own registry. What a step does with them is not known here.
"""

from __future__ import annotations

import gc
import math
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from stash.measure.agent import private
from stash.measure.agent.wraps.groups import default_group, ranks_of
from stash.measure.agent.wraps.scope import scope
from stash.measure.agent.wraps.waits import UNNAMED, GroupCalls

_MAX_ACTIONS = 20_000
"""Of all ranks together, that are recorded of a schedule."""
_MEGATRON = {
    "data": "get_data_parallel_group",
    "tensor": "get_tensor_model_parallel_group",
    "pipeline": "get_pipeline_model_parallel_group",
    "context": "get_context_parallel_group",
    "expert": "get_expert_model_parallel_group",
}
Learned = dict[str, Any]


def parallel_facts(nodes: Mapping[int, int]) -> Learned:
    """Fields of ``records.Workload`` that say how ranks share the work; ``nodes`` has the node of each rank."""
    of_megatron = [
        _describe_axis(name, group.size(), group, nodes)
        for name, group in _megatrons_groups().items()
    ]
    return {"mesh": of_megatron or _mesh_axes(nodes), "pipeline": _find_pipeline()}


def group_names() -> dict[str, str]:
    """What the process groups of this rank are for, by PyTorch's names for them; of meshes the finest tells."""
    world = default_group()
    if world is None:
        return {}
    names = {world.group_name: "world"}
    for stage in _find_alive("torch.distributed.pipelining.stage", "_PipelineStageBase"):
        names[(stage.group or world).group_name] = "pipeline"
    names |= {group.group_name: name for name, group in _megatrons_groups().items()}
    meshes = [
        each
        for each in _find_alive("torch.distributed.device_mesh", "DeviceMesh")
        if each.mesh_dim_names
    ]
    for mesh in sorted(meshes, key=lambda each: len(each.mesh_dim_names)):
        for at, name in enumerate(mesh.mesh_dim_names):
            group = _or_none(partial(mesh.get_group, at))
            if group is not None:
                names[group.group_name] = str(name)
    return names


def stage_layers() -> tuple[int, ...]:
    """Layers of each of this rank's stages, by their numbers: its longest list of modules; empty if one has none."""
    stages = _find_alive("torch.distributed.pipelining.stage", "_PipelineStageBase")
    by_number = {
        int(stage.stage_index): _or_none(partial(_count_layers, stage.submod)) for stage in stages
    }
    found = [by_number[number] or 0 for number in sorted(by_number)]
    return tuple(found) if all(found) else ()


def _count_layers(module: Any) -> int:
    nn = sys.modules["torch"].nn
    lists = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
    return max((len(each) for each in module.modules() if isinstance(each, lists)), default=0)


def group_facts(
    steps: int, totals: Mapping[tuple[str, str], GroupCalls], names: Mapping[str, str]
) -> list[Learned]:
    """Fields of ``GroupUse`` of so many steps, in which this rank called so much."""
    groups = private.groups_by_name()
    return [
        {
            "name": names.get(name, UNNAMED),
            "kind": kind,
            "ranks": group.size(),
            "across_nodes": scope.reaches(group),
            "calls": round(use.calls / steps, 3),
            "bytes": round(use.bytes / steps, 1),
        }
        for (name, kind), use in sorted(totals.items())
        if steps and use.calls and (group := groups.get(name)) is not None
    ]


def _find_alive(module: str, name: str) -> list[Any]:
    """The objects of that class and of those derived from it, without asking any of them anything."""
    cls = getattr(sys.modules.get(module), name, None)
    return [] if cls is None else [each for each in gc.get_objects() if issubclass(type(each), cls)]


def _mesh_axes(nodes: Mapping[int, int]) -> list[Learned]:
    """The axes of the mesh with most of them, of those over all ranks; meshes cut out of it have fewer."""
    found = []
    for mesh in _find_alive("torch.distributed.device_mesh", "DeviceMesh"):
        names = getattr(mesh, "mesh_dim_names", None)
        if names and math.prod(mesh.shape) == len(nodes):
            found.append((len(names), mesh, names))
    if not found:
        return []
    _, mesh, names = max(found, key=lambda one: one[0])
    axes = zip(names, mesh.shape, range(len(names)), strict=True)
    return [
        _describe_axis(name, size, _or_none(partial(mesh.get_group, at)), nodes)
        for name, size, at in axes
    ]


def _megatrons_groups() -> dict[str, Any]:
    """This rank's, by what they are for."""
    registry = sys.modules.get("megatron.core.parallel_state")
    asked = {name: _or_none(getattr(registry, ask, None)) for name, ask in _MEGATRON.items()}
    return {name: group for name, group in asked.items() if group is not None}


def _describe_axis(name: str, size: int, group: Any, nodes: Mapping[int, int]) -> Learned:
    """``group``: the leader's, which stands for all; ``None`` if there is none."""
    across = None if group is None else len({nodes.get(rank) for rank in ranks_of(group)}) > 1
    return {"name": str(name), "ranks": int(size), "across_nodes": across}


def _or_none(asked: Callable[[], Any] | None) -> Any:
    """What somebody else's function returns, if it is there and returns."""
    try:
        return None if asked is None else asked()
    except Exception:  # of a version, or a mesh without groups, that Stash knows nothing about
        return None


def _find_pipeline() -> Learned | None:
    """The schedule with most microbatches of those of torch.distributed.pipelining: that for training."""
    schedules = _find_alive("torch.distributed.pipelining.schedules", "_PipelineSchedule")
    known = [
        found
        for each in schedules
        if (found := _or_none(partial(_describe_schedule, each))) is not None
    ]
    return max(known, key=lambda one: one["microbatches"], default=None)


def _describe_schedule(schedule: Any) -> Learned:
    stage, microbatches = private.stage_and_microbatches(schedule)
    order = getattr(schedule, "pipeline_order", None) or {}
    rows = [
        " ".join(str(action) for action in order[rank] if action is not None)
        for rank in sorted(order)
    ]
    return {
        "name": type(schedule).__name__,
        "stages": int(stage.num_stages),
        "ranks": int(stage.group_size),
        "microbatches": microbatches,
        "orders": rows if sum(row.count(" ") + 1 for row in rows) <= _MAX_ACTIONS else [],
    }
