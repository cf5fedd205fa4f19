"""The wraps of a run that is watched and otherwise left alone: where it waits for loaders, and in collectives.

Nothing here changes what is read, sent or computed; each wrap tells the listener of a stage and calls the original.
What else is told of steps is the same for profiles (``wraps/steps``).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any
from weakref import WeakSet

from stash.measure.agent import private, script
from stash.measure.agent.wraps.groups import LOCAL
from stash.measure.protocol.stamped import StepStage

_COLLECTIVE = int(StepStage.COLLECTIVE)
REPLICAS: WeakSet[Any] = WeakSet()
"""This process's DistributedDataParallel models."""


def wrap_loaders(module: ModuleType) -> None:
    """Tell of every wait for a loader's batch (``torch.utils.data.dataloader``); without gradients none trains."""
    private.wrap_handing_out(module, _timed)


def _timed(hand_out: Callable[[Any], Any]) -> Callable[[Any], Any]:
    is_grad_enabled = sys.modules["torch"].is_grad_enabled

    @functools.wraps(hand_out)
    def timed(self: Any) -> Any:
        listener = script.bus.listener
        if not listener.listens or not is_grad_enabled():
            return hand_out(self)
        return listener.loops.waited(private.data_set(self), hand_out, self)

    return timed


def wrap_collectives(c10d: ModuleType) -> None:
    """Tell of every call of a collective, before anyone copies its name; and of waits for one that goes on beside."""
    for name in LOCAL:
        original = getattr(c10d, name, None)
        if original is not None:
            setattr(c10d, name, _staged(original))
    work = getattr(c10d, "Work", None)
    if work is not None:
        work.wait = _staged(work.wait)


def _staged(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        before = script.enter(_COLLECTIVE)
        try:
            return original(*args, **kwargs)
        finally:
            script.enter(before)

    return call


def wrap_ddp(module: ModuleType) -> None:
    """Know of the models that DistributedDataParallel exchanges gradients of (``torch.nn.parallel.distributed``)."""
    original = module.DistributedDataParallel.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        REPLICAS.add(self)

    module.DistributedDataParallel.__init__ = init
