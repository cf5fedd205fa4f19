"""Collectives of a group confined to a node: over what of it lies there, with own values in the other ranks' places.

Pure but for the call of the real collective. Which calls are to be confined, ``wraps.collectives`` knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stash.measure.agent.wraps.groups import NodePart

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
