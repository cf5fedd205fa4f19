"""Every collective called through ``torch.distributed``, under the scope in force.

Under scope *world* a call is passed on untouched. Under *node* it runs over the node's subgroup; under
*self* it does what a group of one would do. Collectives that C++ code issues by itself never come here:
``private.sequence_numbers`` lets the climb see that they happened.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from stash.measure.agent import script
from stash.measure.agent.wraps.group_of_node import within_node
from stash.measure.agent.wraps.group_of_one import LOCAL, Call, answer
from stash.measure.agent.wraps.scope import NODE_CAPABLE, scope


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
            script.ended()
        destroy(group)

    return ending


def _scoped(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if scope.passes:
            return original(*args, **kwargs)
        script.acted()
        if scope.name == "world":
            scope.issued[name] += 1
            with scope.untouched():  # object collectives call tensor ones: count and map only the outer call
                return original(*args, **kwargs)
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        group = given.arguments.get("group")
        if group is not None and not hasattr(group, "rank"):
            return original(*args, **kwargs)  # not a member: PyTorch's own warning
        return _confined(name, original, given.arguments)

    return call


def _confined(name: str, original: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """What the caller gets under a scope below world."""
    from torch.distributed import distributed_c10d as c10d

    group: Any = arguments.get("group") or c10d.group.WORLD
    if scope.name == "node" and name in NODE_CAPABLE:
        members = c10d.get_process_group_ranks(group)
        with scope.untouched():
            if set(members) <= set(scope.node_ranks):
                return original(**arguments)
            if members == list(range(c10d.get_world_size())):
                return within_node(name, original, arguments, scope.node_group, scope.node_ranks, len(members))
    return answer(name, Call(arguments, max(group.rank(), 0), group.size()))
