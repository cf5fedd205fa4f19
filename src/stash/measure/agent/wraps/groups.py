"""The process groups of a job, and what a collective does in a part of one: on a node, or in a group of one.

A subgroup of the script's own (Megatron's data-parallel ranks) need not lie on a node or beyond it as a whole: those
of its ranks that share a node go on exchanging under scope *node*, with own values in the other ranks' places. Under
scope *self* each rank gets identity and replication, in the shapes that the caller expects. Which calls are to be
confined, only ``wraps/scope`` knows.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from stash.measure.agent.script import Function
from stash.measure.protocol.wire import register_record

Arguments = dict[str, Any]


@dataclass(frozen=True)
class NodePart:
    """What of a process group lies on this rank's node; ``group`` is None where that is this rank alone."""

    group: Any
    ranks: tuple[int, ...]
    """Global, in the order of the whole group."""


@register_record
@dataclass(frozen=True)
class Membership:
    """A process group as its ranks describe it to each other."""

    name: str
    ranks: tuple[int, ...]
    """Global, in the group's order."""
    backend: str


def ranks_of(group: Any) -> tuple[int, ...]:
    """Its global ranks."""
    from torch.distributed import distributed_c10d as c10d

    return tuple(c10d.get_process_group_ranks(group))


def default_group() -> Any:
    """The one of all ranks."""
    from torch.distributed import distributed_c10d as c10d

    return c10d.group.WORLD


def describe_group(group: Any) -> Membership:
    """What the other ranks must know of a group that this one is in."""
    from torch.distributed import distributed_c10d as c10d

    return Membership(group.group_name, ranks_of(group), str(c10d.get_backend_config(group)))


def parts_on(nodes: Mapping[int, int], groups: Iterable[Membership]) -> list[Membership]:
    """The parts, of two ranks or more, that groups reaching beyond a node fall into; ``nodes``: of each rank.

    Each part has the name of its whole. The order is the same on every rank.
    """
    found = []
    for group in sorted(set(groups), key=lambda each: (each.name, each.ranks)):
        homes = list(dict.fromkeys(nodes[rank] for rank in group.ranks))
        cut = [tuple(rank for rank in group.ranks if nodes[rank] == home) for home in homes]
        found += [
            Membership(group.name, ranks, group.backend)
            for ranks in cut
            if 1 < len(ranks) < len(group.ranks)
        ]
    return found


def form_groups(parts: Iterable[Membership], own_rank: int) -> dict[str, NodePart]:
    """Form these groups, with all other ranks; the value holds this rank's, by the names of their wholes."""
    import torch.distributed as dist

    usual, own = describe_group(default_group()).backend, {}
    for part in parts:
        group = dist.new_group(
            list(part.ranks), backend=None if part.backend == usual else part.backend
        )
        if own_rank in part.ranks:
            own[part.name] = NodePart(group, part.ranks)
    return own


def within_node(
    name: str, original: Function, arguments: Arguments, part: NodePart, ranks: tuple[int, ...]
) -> Any:
    """Run a collective over ``part`` of a group whose global ranks are ``ranks``."""
    arguments = {**arguments, "group": part.group}
    for root in ("src", "dst"):  # PyTorch takes it by global rank or by place
        place = arguments.pop(f"group_{root}", None)
        if place is not None:
            arguments[root] = ranks[place]
        if root in arguments and arguments[root] not in part.ranks:  # it is on another node
            arguments[root] = part.ranks[0]
    if name not in _RESHAPED:
        return original(**arguments)
    places = [ranks.index(rank) for rank in part.ranks]
    return _RESHAPED[name](original, arguments, places, len(ranks))


def _gather_list(original: Function, arguments: Arguments, places: list[int], size: int) -> Any:
    (key, everyone), (_, own), *_ = arguments.items()
    mine = [everyone[place] for place in places]
    for place in set(range(size)) - set(places):
        if key == "object_list":
            everyone[place] = own
        else:
            _stand_in(everyone[place], own)
    result = original(**{**arguments, key: mine})
    for place, item in zip(places, mine, strict=True):
        everyone[place] = item
    return result


def _stand_in(output: Any, own: Any) -> None:
    """Own values in other ranks' places; zeros where they have another number of them, and not what was in memory.

    Of lists in every place of them, from one of ``own``'s each if those are a list too.
    """
    if isinstance(output, (list, tuple)):
        values = own if isinstance(own, (list, tuple)) else itertools.repeat(own)
        for part, value in zip(output, values, strict=False):
            _stand_in(part, value)
    elif output.numel() == own.numel():
        output.copy_(own.reshape(output.shape))
    else:
        output.zero_()


def _gather_tensor(original: Function, arguments: Arguments, places: list[int], size: int) -> Any:
    (key, output), (_, own), *_ = arguments.items()
    _replicate(output, own, 0, size)
    return original(**{**arguments, key: _side_by_side(output.view(size, -1), places).view(-1)})


def _scatter_tensor(original: Function, arguments: Arguments, places: list[int], size: int) -> Any:
    """Of the whole, as many chunks as the node has ranks."""
    _, (key, whole), *_ = arguments.items()
    chunks = _side_by_side(whole.reshape(size, -1), places)
    return original(**{**arguments, key: chunks.reshape(-1)})


def _side_by_side(everyone: Any, places: list[int]) -> Any:
    """Rows for the node's ranks without a copy: their own places where those are neighbours."""
    first = min(places[0], len(everyone) - len(places))
    return everyone[first : first + len(places)]


_RESHAPED = {
    "all_gather": _gather_list,
    "all_gather_object": _gather_list,
    "all_gather_into_tensor": _gather_tensor,
    "all_gather_single": _gather_tensor,
    "reduce_scatter_tensor": _scatter_tensor,
}
"""Those whose arguments have a place for every rank."""


@functools.cache
def finished_work() -> Function:
    """The class of what an asynchronous collective of a group of one returns: C++ code takes it for a ``Work``."""
    import torch
    from torch.distributed import distributed_c10d as c10d

    class Finished(c10d.Work):
        def __init__(self, result: Any) -> None:
            super().__init__()
            self._result = result

        def wait(self, timeout: Any = None) -> bool:
            return True

        is_completed = is_success = wait

        def result(self) -> Any:
            return self._result

        def get_future(self) -> Any:
            future: Any = torch.futures.Future()
            future.set_result(self._result if isinstance(self._result, list) else [self._result])
            return future

    return Finished


def _identity(tensor: Any, other: Any, rank: int, size: int) -> Any:
    return tensor


def _fill(output: Any, own: Any, rank: int, size: int) -> Any:
    _stand_in(output, own)
    return output


def _replicate(output: Any, own: Any, rank: int, size: int) -> Any:
    output.view(size, -1).copy_(own.reshape(1, -1))
    return output


def _take_chunk(output: Any, whole: Any, rank: int, size: int) -> Any:
    output.view(-1).copy_(whole.reshape(size, -1)[rank])
    return output


def _take_part(output: Any, parts: Any, rank: int, size: int) -> Any:
    if parts:
        output.copy_(parts[rank])
    return output


def _gather(own: Any, outputs: Any, rank: int, size: int) -> Any:
    for output in outputs or ():
        output.copy_(own)
    return own


def _fill_objects(outputs: Any, own: Any, rank: int, size: int) -> None:
    outputs[:] = [own] * len(outputs)


def _gather_objects(own: Any, outputs: Any, rank: int, size: int) -> None:
    _fill_objects(outputs or [], own, rank, size)


def _take_object(outputs: Any, objects: Any, rank: int, size: int) -> None:
    if objects:
        outputs[0] = objects[rank]


LOCAL: Mapping[str, Function | None] = {
    "all_reduce": _identity,
    "all_reduce_coalesced": _identity,
    "broadcast": _identity,
    "reduce": _identity,
    "barrier": None,
    "monitored_barrier": None,
    "all_gather": _fill,
    "all_gather_coalesced": _fill,
    "all_gather_into_tensor": _replicate,
    "all_gather_single": _replicate,
    "_all_gather_base": _replicate,
    "reduce_scatter": _take_part,
    "reduce_scatter_tensor": _take_chunk,
    "reduce_scatter_single": _take_chunk,
    "_reduce_scatter_base": _take_chunk,
    "gather": _gather,
    "scatter": _take_part,
    "all_to_all": _fill,
    "all_to_all_single": _fill,
    "all_gather_object": _fill_objects,
    "gather_object": _gather_objects,
    "broadcast_object_list": None,
    "scatter_object_list": _take_object,
    "send": None,
    "recv": None,
    "isend": None,
    "irecv": None,
    "batch_isend_irecv": None,
}
"""By name, what the first two arguments, this rank's place and the group's size make of it; ``None``: nothing.

PyTorch has renamed some collectives and arguments over time, and never changed the order of arguments.
"""
ALWAYS_WORK = frozenset({"isend", "irecv"})
"""Asynchronous without being asked to be."""


def answer_alone(name: str, arguments: Arguments, rank: int, size: int) -> Any:
    """What the caller of the collective ``name`` gets back in a group of one, by this rank of a larger group."""
    if name == "batch_isend_irecv":
        return []
    act, result = LOCAL[name], None
    if act is not None:
        result = act(*[*arguments.values(), None][:2], rank, size)
    is_work = arguments.get("async_op") or name in ALWAYS_WORK
    return finished_work()(result) if is_work else None
