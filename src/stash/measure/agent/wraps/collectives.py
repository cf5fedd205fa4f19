"""Collectives called through ``torch.distributed``, under the scope in force, confined to a node where it says so."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from stash.measure.agent import script
from stash.measure.agent.wraps.group_of_one import LOCAL, Call, answer
from stash.measure.agent.wraps.scope import NODE_CAPABLE, NodePart, default_group, ranks_of, scope

# Group of node ---------------------------------------------------------------------------------------------
# Collectives of a group confined to a node: over what of it lies there, with own values in the other ranks' places.
#
# Pure but for the call of the real collective. Which calls are to be confined, ``wraps.collectives`` knows.

Original = Callable[..., Any]
Arguments = dict[str, Any]


def within_node(name: str, original: Original, arguments: Arguments, part: NodePart, ranks: tuple[int, ...]) -> Any:
    """Run a collective over ``part`` of a group whose global ranks are ``ranks``."""
    arguments = {**arguments, "group": part.group}
    for root in ("src", "dst"):
        _move_root(arguments, root, part, ranks)
    places = [ranks.index(rank) for rank in part.ranks]
    return _RESHAPED.get(name, _as_it_is)(original, arguments, places, len(ranks))


def _move_root(arguments: Arguments, root: str, part: NodePart, ranks: tuple[int, ...]) -> None:
    """A root on another node is replaced by the part's first rank; PyTorch takes it by global rank or by place."""
    place = arguments.pop(f"group_{root}", None)
    if place is None and root not in arguments:
        return
    asked = arguments.get(root) if place is None else ranks[place]
    arguments[root] = part.ranks[0] if asked not in part.ranks else asked


def _as_it_is(original: Original, arguments: Arguments, places: list[int], size: int) -> Any:
    return original(**arguments)


def _gather_list(original: Original, arguments: Arguments, places: list[int], size: int) -> Any:
    key = "tensor_list" if "tensor_list" in arguments else "object_list"
    everyone = arguments[key]
    own = arguments.get("tensor", arguments.get("obj"))
    mine = [everyone[place] for place in places]
    for place in set(range(size)) - set(places):
        if key == "tensor_list":
            everyone[place].copy_(own)
        else:
            everyone[place] = own
    result = original(**{**arguments, key: mine})
    if key == "object_list":
        for place, item in zip(places, mine, strict=True):
            everyone[place] = item
    return result


def _gather_tensor(original: Original, arguments: Arguments, places: list[int], size: int) -> Any:
    key = "output_tensor" if "output_tensor" in arguments else "output"
    given = arguments.get("input_tensor", arguments.get("input"))
    assert given is not None
    everyone = arguments[key].view(size, -1)
    everyone.copy_(given.reshape(1, -1))
    return original(**{**arguments, key: _side_by_side(everyone, places).view(-1)})


def _scatter_tensor(original: Original, arguments: Arguments, places: list[int], size: int) -> Any:
    """Of the whole, as many chunks as the node has ranks."""
    key = "input" if "input" in arguments else "input_tensor"
    chunks = _side_by_side(arguments[key].reshape(size, -1), places)
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


# Collectives -----------------------------------------------------------------------------------------------
# Every collective called through ``torch.distributed``, under the scope in force.
#
# Under scope *world* a call is passed on untouched. Under *node* it runs over what of its group lies on the node;
# under *self* it does what a group of one would do. Collectives that C++ code issues by itself never come here:
# ``private.sequence_numbers`` lets the climb see that they happened.


def wrap(c10d: ModuleType) -> None:
    """Wrap the collectives of ``torch.distributed.distributed_c10d`` before anyone copies their names."""
    for name in LOCAL:
        original = getattr(c10d, name, None)
        if original is not None:
            setattr(c10d, name, _scoped(name, original))
    c10d.destroy_process_group = _ending(c10d.destroy_process_group)  # type: ignore[attr-defined]
    c10d.init_process_group = script.then(c10d.init_process_group, script.world_formed)  # type: ignore[attr-defined]


def _ending(destroy: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(destroy)
    def ending(group: Any = None) -> None:
        from torch.distributed import distributed_c10d as c10d

        if group is None or group is c10d.GroupMember.WORLD:
            _tell_of_the_end(sys.exc_info()[1])
        destroy(group)

    return ending


def _tell_of_the_end(error: BaseException | None) -> None:
    """The script destroys its process group because it is done, or on its way out under ``error``."""
    if error is None:
        script.ended()
    elif isinstance(error, SystemExit):
        script.exits(last=False)
    else:
        script.abandoned()


def _scoped(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if scope.passes:
            return original(*args, **kwargs)
        script.acted()
        given = signature.bind(*args, **kwargs)
        group = _group_of(given.arguments)
        if not hasattr(group, "rank"):
            return original(*args, **kwargs)  # not a member: PyTorch's own warning
        if scope.name == "world":
            scope.count(name, group, 0 if "object" in name else payload(given.arguments.values()))
            with scope.untouched():  # object collectives call tensor ones: count and map only the outer call
                return original(*args, **kwargs)
        given.apply_defaults()
        return _confined(name, original, given.arguments, group)

    return call


def _group_of(arguments: dict[str, Any]) -> Any:
    operations = arguments.get("p2p_op_list")
    group = operations[0].group if operations else arguments.get("group")
    return default_group() if group is None else group


def _confined(name: str, original: Callable[..., Any], arguments: dict[str, Any], group: Any) -> Any:
    """What the caller gets under a scope below world."""
    if scope.name == "node":
        ranks, part = ranks_of(group), scope.parts.get(group.group_name)
        with scope.untouched():
            if scope.holds(ranks):
                return original(**arguments)
            if part is not None and name in NODE_CAPABLE:
                return within_node(name, original, arguments, part, ranks)
        if part is None and len(set(ranks) & set(scope.node_ranks)) > 1:
            script.note("a process group that no step of the warm-up used is not exchanged over under the rung node")
    return answer(name, Call(arguments, max(group.rank(), 0), group.size()))


def payload(arguments: Iterable[Any]) -> int:
    """Bytes of the largest argument: what is reduced, all that is gathered, all that is scattered.

    That is the size by which nccl-tests calls a collective.
    """
    return max(map(_bytes, arguments), default=0)


def _bytes(value: Any) -> int:
    """Of a tensor, of lists of them, and of the operations of ``batch_isend_irecv``."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, (list, tuple)):
        return sum(map(_bytes, value))
    return _bytes(getattr(value, "tensor", ()))
