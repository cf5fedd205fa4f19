"""What a trial of ``stash fix`` changes: settings of its orders, and those that blocks of one launch take turns in.

``settings`` is asked whenever a wrapped call runs, so that what is set by calls alone changes with the block. What is
set once for the process, like threads, flags and the form of optimizers, is put in and taken out by ``switch``.
Everything is changed between two steps. Whether a setting can be switched at all is ``fix/tries``' to know.
"""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

from stash.measure.protocol.orders import current

TrialSettings = Mapping[str, Any]


class _Process:
    """What is on in this process now, and how to go back."""

    turn: ClassVar[TrialSettings] = {}
    undo: ClassVar[list[Callable[[], None]]] = []
    optimizers: ClassVar[weakref.WeakSet[Any]] = weakref.WeakSet()


def settings() -> TrialSettings | None:
    """What is changed now; None outside a trial."""
    orders = current()
    return None if orders is None or orders.trial is None else {**orders.trial, **_Process.turn}


def part(name: str) -> dict[str, Any]:
    """The settings of that name; none are."""
    found = (settings() or {}).get(name)
    return dict(found) if isinstance(found, Mapping) else {}


def ever(name: str) -> bool:
    """Whether this launch changes that at any time."""
    now = settings() or {}
    rungs = now.get("rungs")
    return bool(now.get(name)) or (isinstance(rungs, list) and any(rung.get(name) for rung in rungs))


def built(optimizer: Any) -> None:
    """Know an optimizer whose form may be switched."""
    if ever("optimizer"):
        _Process.optimizers.add(optimizer)


def set_flags(flags: Mapping[str, Any]) -> None:
    """Set attributes of torch, by name from below it; ``switch`` sets them back."""
    for name, value in flags.items():
        target, (*path, attribute) = sys.modules["torch"], name.split(".")
        for each in path:
            target = getattr(target, each)
        _Process.undo.append(partial(setattr, target, attribute, getattr(target, attribute)))
        setattr(target, attribute, value)


def switch(turn: TrialSettings) -> None:
    """Change to the settings of another block; its loader is switched elsewhere."""
    while _Process.undo:
        _Process.undo.pop()()
    _Process.turn = {name: value for name, value in turn.items() if name != "loader"}
    set_flags(part("flags"))
    if turn.get("threads"):
        torch = sys.modules["torch"]
        set_threads = inspect.unwrap(torch.set_num_threads)
        _Process.undo.append(partial(set_threads, torch.get_num_threads()))
        set_threads(int(turn["threads"]))
    asked = part("optimizer")
    for optimizer in list(_Process.optimizers) if asked else ():
        before = [dict(group) for group in optimizer.param_groups]
        _Process.undo.append(partial(_set_groups, optimizer, before))
        _set_groups(optimizer, [{**group, **asked, "foreach": None} for group in before])


def _set_groups(optimizer: Any, wanted: list[dict[str, Any]]) -> None:
    """Give groups of parameters another form of the same update; a fused one keeps its count beside the parameter."""
    for group, new in zip(optimizer.param_groups, wanted, strict=True):
        for name in ("fused", "foreach"):
            if name in new:
                group[name] = new[name]
        for parameter in group["params"]:
            count = optimizer.state.get(parameter, {}).get("step")
            if hasattr(count, "to"):
                beside = group.get("fused") or group.get("capturable")
                optimizer.state[parameter]["step"] = count.to(parameter.device if beside else "cpu")
