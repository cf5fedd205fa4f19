"""The scope of every collective called through ``torch.distributed``: world, node or self.

Under scope *world* a call is passed on untouched. Under *node* it runs over the node's subgroup; under
*self* it does what a group of one would do, in the shapes the caller expects (identity, replicate), so a
rank can step while the others wait. Collectives that C++ code issues by itself never come here:
``sequence_numbers`` lets the climber see that they happened.
"""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from stash.base.ladder import Scope
from stash.measure.agent.wraps import steps

_scope: Scope = "world"
_node_group: Any = None
_node_ranks: tuple[int, ...] = ()
_bypass = False
_depth = 0
issued: Counter[str] = Counter()
"""Collectives the script called under scope world since the last ``issued.clear()``, by name."""

_NODE_CAPABLE = {
    "all_reduce", "broadcast", "reduce", "barrier", "monitored_barrier", "all_gather", "all_gather_into_tensor",
    "all_gather_single", "all_gather_object", "broadcast_object_list", "reduce_scatter_tensor",
}  # fmt: skip


class Done:
    """A finished ``Work``: what an asynchronous collective of a group of one returns."""

    def __init__(self, result: Any = None) -> None:
        self._result = result

    def wait(self, timeout: Any = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def result(self) -> Any:
        return self._result

    def get_future(self) -> Any:
        import torch

        future: Any = torch.futures.Future()
        future.set_result(self._result if isinstance(self._result, list) else [self._result])
        return future


def set_scope(scope: Scope) -> None:
    """Switch the scope of all later calls in this process."""
    global _scope
    _scope = scope


def scope() -> Scope:
    """The scope in force."""
    return _scope


def set_node_group(group: Any, ranks: tuple[int, ...]) -> None:
    """Tell which process group stands for this rank's node, and its global ranks."""
    global _node_group, _node_ranks
    _node_group, _node_ranks = group, ranks


@contextmanager
def untouched() -> Iterator[None]:
    """Collectives of Stash's own control traffic: always real, never counted."""
    global _bypass
    before, _bypass = _bypass, True
    try:
        yield
    finally:
        _bypass = before


def beyond_node_scope() -> list[str]:
    """Names of collectives the script issued that cannot be confined to a node."""
    return sorted(set(issued) - _NODE_CAPABLE)


def sequence_numbers() -> dict[str, int]:
    """How many collectives each process group has started so far, those of C++ code included."""
    from torch.distributed import distributed_c10d as c10d

    numbers = {}
    groups: dict[Any, Any] = dict(c10d._world.pg_names)
    for group, name in groups.items():
        try:
            numbers[str(name)] = int(group._get_sequence_number_for_group())
        except (RuntimeError, NotImplementedError):
            continue  # a backend without sequence numbers cannot be watched
    return numbers


def wrap(c10d: ModuleType) -> None:
    """Wrap the collectives of ``torch.distributed.distributed_c10d`` before anyone copies their names."""
    for name, local in _LOCAL.items():
        original = getattr(c10d, name, None)
        if original is not None:
            setattr(c10d, name, _scoped(name, original, local))
    c10d.destroy_process_group = _ending(c10d.destroy_process_group)  # type: ignore[attr-defined]
    c10d.init_process_group = steps.after(c10d.init_process_group, steps.on_world_formed)  # type: ignore[attr-defined]


def _ending(destroy: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(destroy)
    def ending(group: Any = None) -> None:
        from torch.distributed import distributed_c10d as c10d

        if group is None or group is c10d.GroupMember.WORLD:
            steps.script_ended()
        destroy(group)

    return ending


def _scoped(name: str, original: Callable[..., Any], local: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        global _depth
        if _bypass or _depth:
            return original(*args, **kwargs)
        steps.collective_called()
        if _scope == "world":
            issued[name] += 1
            _depth += 1  # object collectives call tensor ones: count and map only the outer call
            try:
                return original(*args, **kwargs)
            finally:
                _depth -= 1
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        group = given.arguments.get("group")
        if group is not None and not hasattr(group, "rank"):
            return original(*args, **kwargs)  # not a member: PyTorch's own warning
        if name == "batch_isend_irecv":
            return []
        if _scope == "node" and name in _NODE_CAPABLE:
            _depth += 1
            try:
                return _within_node(name, original, given.arguments)
            finally:
                _depth -= 1
        result = local(_Call(given.arguments))
        return Done(result) if given.arguments.get("async_op") or name in _ALWAYS_WORK else None

    return call


class _Call:
    """The bound arguments of a collective, with the group's size and this rank's place in it."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments
        from torch.distributed import distributed_c10d as c10d

        group: Any = arguments.get("group") or c10d.group.WORLD
        self.rank = max(group.rank(), 0)
        self.size = group.size()

    def __getitem__(self, name: str) -> Any:
        return self.arguments.get(name)

    def first(self, *names: str) -> Any:
        """The first argument that exists among ``names``: PyTorch has renamed some over time."""
        return next((self.arguments[n] for n in names if n in self.arguments), None)


def _identity(call: _Call) -> Any:
    return call.first("tensor", "tensors", "object_list")


def _nothing(call: _Call) -> Any:
    return None


def _fill_list(call: _Call) -> Any:
    outputs, tensor = call["tensor_list"], call["tensor"]
    for output in outputs:
        output.copy_(tensor)
    return outputs


def _fill_lists(call: _Call) -> Any:
    for outputs, tensor in zip(call["output_tensor_lists"], call["input_tensor_list"], strict=False):
        for output in outputs:
            output.copy_(tensor)
    return call["output_tensor_lists"]


def _replicate(call: _Call) -> Any:
    output = call.first("output_tensor", "output")
    given = call.first("input_tensor", "input")
    output.view(call.size, -1).copy_(given.reshape(1, -1))
    return output


def _own_chunk(call: _Call) -> Any:
    output = call["output"]
    given = call.first("input", "input_tensor")
    output.view(-1).copy_(given.reshape(call.size, -1)[call.rank])
    return output


def _own_of_list(call: _Call) -> Any:
    call["output"].copy_(call["input_list"][call.rank])
    return call["output"]


def _gather(call: _Call) -> Any:
    for output in call["gather_list"] or ():
        output.copy_(call["tensor"])
    return call["tensor"]


def _scatter(call: _Call) -> Any:
    if call["scatter_list"]:
        call["tensor"].copy_(call["scatter_list"][call.rank])
    return call["tensor"]


def _exchange_lists(call: _Call) -> Any:
    for output, given in zip(call["output_tensor_list"], call["input_tensor_list"], strict=False):
        if output.shape == given.shape:
            output.copy_(given)
    return call["output_tensor_list"]


def _exchange(call: _Call) -> Any:
    output, given = call["output"], call["input"]
    if output.numel() == given.numel():
        output.view(-1).copy_(given.reshape(-1))
    return output


def _fill_objects(call: _Call) -> None:
    outputs = call["object_list"] if call["object_list"] is not None else call["object_gather_list"]
    if outputs is not None:
        outputs[:] = [call["obj"]] * len(outputs)


def _scatter_objects(call: _Call) -> None:
    given = call["scatter_object_input_list"]
    if given:
        call["scatter_object_output_list"][0] = given[call.rank]


_LOCAL: dict[str, Callable[[_Call], Any]] = {
    "all_reduce": _identity,
    "all_reduce_coalesced": _identity,
    "broadcast": _identity,
    "reduce": _identity,
    "barrier": _nothing,
    "monitored_barrier": _nothing,
    "all_gather": _fill_list,
    "all_gather_coalesced": _fill_lists,
    "all_gather_into_tensor": _replicate,
    "all_gather_single": _replicate,
    "_all_gather_base": _replicate,
    "reduce_scatter": _own_of_list,
    "reduce_scatter_tensor": _own_chunk,
    "reduce_scatter_single": _own_chunk,
    "_reduce_scatter_base": _own_chunk,
    "gather": _gather,
    "scatter": _scatter,
    "all_to_all": _exchange_lists,
    "all_to_all_single": _exchange,
    "all_gather_object": _fill_objects,
    "gather_object": _fill_objects,
    "broadcast_object_list": _nothing,
    "scatter_object_list": _scatter_objects,
    "send": _nothing,
    "recv": _nothing,
    "isend": _nothing,
    "irecv": _nothing,
    "batch_isend_irecv": _nothing,
}
_ALWAYS_WORK = {"isend", "irecv"}


def _within_node(name: str, original: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Run a collective over the node's subgroup, filling the places of other nodes with this rank's own."""
    from torch.distributed import distributed_c10d as c10d

    group = arguments.get("group") or c10d.group.WORLD
    members = tuple(c10d.get_process_group_ranks(group))
    if set(members) <= set(_node_ranks):
        return original(**arguments)
    if members != tuple(range(c10d.get_world_size())):
        result = _LOCAL[name](_Call(arguments))
        return Done(result) if arguments.get("async_op") else None
    arguments = {**arguments, "group": _node_group}
    for root in ("src", "dst"):
        if root in arguments and arguments[root] not in _node_ranks:
            arguments[root] = _node_ranks[0]
    if "group_src" in arguments:
        arguments["group_src"] = None
    if "group_dst" in arguments:
        arguments["group_dst"] = None
    return _NODE.get(name, _as_it_is)(original, arguments, members)


def _as_it_is(original: Callable[..., Any], arguments: dict[str, Any], members: tuple[int, ...]) -> Any:
    return original(**arguments)


def _gather_list_in_node(original: Callable[..., Any], arguments: dict[str, Any], members: tuple[int, ...]) -> Any:
    key = "tensor_list" if "tensor_list" in arguments else "object_list"
    everyone = arguments[key]
    own = arguments.get("tensor", arguments.get("obj"))
    mine = [everyone[r] for r in _node_ranks]
    for rank in set(members) - set(_node_ranks):
        if key == "tensor_list":
            everyone[rank].copy_(own)
        else:
            everyone[rank] = own
    result = original(**{**arguments, key: mine})
    if key == "object_list":
        for rank, item in zip(_node_ranks, mine, strict=True):
            everyone[rank] = item
    return result


def _gather_tensor_in_node(original: Callable[..., Any], arguments: dict[str, Any], members: tuple[int, ...]) -> Any:
    key = "output_tensor" if "output_tensor" in arguments else "output"
    given = arguments.get("input_tensor", arguments.get("input"))
    assert given is not None
    everyone = arguments[key].view(len(members), -1)
    everyone.copy_(given.reshape(1, -1))
    first, count = _node_ranks[0], len(_node_ranks)
    if _node_ranks != tuple(range(first, first + count)):
        return Done(arguments[key]) if arguments.get("async_op") else None
    return original(**{**arguments, key: everyone[first : first + count].view(-1)})


def _scatter_tensor_in_node(original: Callable[..., Any], arguments: dict[str, Any], members: tuple[int, ...]) -> Any:
    key = "input" if "input" in arguments else "input_tensor"
    chunks = arguments[key].reshape(len(members), -1)
    return original(**{**arguments, key: chunks[list(_node_ranks)].reshape(-1)})


_NODE = {
    "all_gather": _gather_list_in_node,
    "all_gather_object": _gather_list_in_node,
    "all_gather_into_tensor": _gather_tensor_in_node,
    "all_gather_single": _gather_tensor_in_node,
    "reduce_scatter_tensor": _scatter_tensor_in_node,
}
