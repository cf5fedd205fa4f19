"""Collectives of the whole world confined to a node: over its subgroup, with own values in the other nodes' places.

Pure but for the call of the real collective. Which calls are to be confined, ``wraps.collectives`` knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stash.measure.agent.wraps.group_of_one import Done

Original = Callable[..., Any]
Arguments = dict[str, Any]


def within_node(
    name: str, original: Original, arguments: Arguments, group: Any, ranks: tuple[int, ...], world: int
) -> Any:
    """Run a collective of the whole world over ``group``, whose global ranks are ``ranks``."""
    arguments = {**arguments, "group": group}
    for root in ("src", "dst"):
        if root in arguments and arguments[root] not in ranks:
            arguments[root] = ranks[0]
    for root in ("group_src", "group_dst"):
        if root in arguments:
            arguments[root] = None
    return _RESHAPED.get(name, _as_it_is)(original, arguments, ranks, world)


def _as_it_is(original: Original, arguments: Arguments, ranks: tuple[int, ...], world: int) -> Any:
    return original(**arguments)


def _gather_list(original: Original, arguments: Arguments, ranks: tuple[int, ...], world: int) -> Any:
    key = "tensor_list" if "tensor_list" in arguments else "object_list"
    everyone = arguments[key]
    own = arguments.get("tensor", arguments.get("obj"))
    mine = [everyone[r] for r in ranks]
    for rank in set(range(world)) - set(ranks):
        if key == "tensor_list":
            everyone[rank].copy_(own)
        else:
            everyone[rank] = own
    result = original(**{**arguments, key: mine})
    if key == "object_list":
        for rank, item in zip(ranks, mine, strict=True):
            everyone[rank] = item
    return result


def _gather_tensor(original: Original, arguments: Arguments, ranks: tuple[int, ...], world: int) -> Any:
    key = "output_tensor" if "output_tensor" in arguments else "output"
    given = arguments.get("input_tensor", arguments.get("input"))
    assert given is not None
    everyone = arguments[key].view(world, -1)
    everyone.copy_(given.reshape(1, -1))
    first, count = ranks[0], len(ranks)
    if ranks != tuple(range(first, first + count)):
        return Done(arguments[key]) if arguments.get("async_op") else None
    return original(**{**arguments, key: everyone[first : first + count].view(-1)})


def _scatter_tensor(original: Original, arguments: Arguments, ranks: tuple[int, ...], world: int) -> Any:
    key = "input" if "input" in arguments else "input_tensor"
    chunks = arguments[key].reshape(world, -1)
    return original(**{**arguments, key: chunks[list(ranks)].reshape(-1)})


_RESHAPED = {
    "all_gather": _gather_list,
    "all_gather_object": _gather_list,
    "all_gather_into_tensor": _gather_tensor,
    "all_gather_single": _gather_tensor,
    "reduce_scatter_tensor": _scatter_tensor,
}
"""Those whose arguments have a place for every rank."""
