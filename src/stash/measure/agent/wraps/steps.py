"""Where a script steps: its optimizers, AMP's loss scaler, its schedulers; and where it starts ranks itself.

A step ends where an optimizer steps, whatever the framework around it. Schedulers that count the job's steps are
kept from failing over the extra ones a profile takes.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from stash.measure.agent import script
from stash.measure.agent.last_words import report_crashes_of_ranks
from stash.measure.agent.wraps.updates import own_update
from stash.measure.run.journal import ended
from stash.measure.run.orders import current


class _Taken:
    """Steps that optimizers of this process have taken."""

    steps = 0


def wrap_optimizer(module: ModuleType) -> None:
    """Hear of every optimizer step of this process."""

    def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
        _Taken.steps += 1
        listener = script.heard_by()
        if listener is not None and not _captured():
            listener.stepped(optimizer)

    module.register_optimizer_step_post_hook(stepped)
    begin = module.Optimizer.__init__

    @functools.wraps(begin)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        own_update.told = True  # its steps will be heard
        begin(self, *args, **kwargs)

    module.Optimizer.__init__ = made


def _captured() -> bool:
    """Whether this step is being captured into a CUDA graph, whose replays nobody sees."""
    cuda = sys.modules.get("torch.cuda")
    if cuda is None or not cuda.is_initialized() or not cuda.is_current_stream_capturing():
        return False
    script.note("the optimizer step is captured in a CUDA graph, whose replays Stash cannot see")
    return True


def wrap_scaler(module: ModuleType) -> None:
    """A step that AMP's loss scaling skips (gradients overflowed) is a step of the loop all the same."""
    step = module.GradScaler.step

    @functools.wraps(step)
    def counted(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if not script.active() or _captured():
            return step(self, optimizer, *args, **kwargs)
        before = _Taken.steps
        result = step(self, optimizer, *args, **kwargs)
        if _Taken.steps == before:
            script.note("loss scaling skipped optimizer steps; those steps lack the optimizer's own time")
            script.stepped(optimizer)
        return result

    module.GradScaler.step = counted


def wrap_schedulers(module: ModuleType) -> None:
    """Let schedulers that count the job's steps pass over the extra ones a profile takes."""
    for name in (
        "LRScheduler",
        "OneCycleLR",
        "ReduceLROnPlateau",
        "CosineAnnealingWarmRestarts",
        "SequentialLR",
    ):
        cls = getattr(module, name, None)
        if cls is not None and "step" in vars(cls):
            cls.step = _tolerant(cls.step)


def _tolerant(step: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(step)
    def tolerant(*args: Any, **kwargs: Any) -> Any:
        try:
            return step(*args, **kwargs)
        except ValueError:
            if not script.active():
                raise
            return None

    return tolerant


def wrap_spawn(module: ModuleType) -> None:
    """After ``mp.spawn`` the ranks have been profiled: the parent must not go on to use their results."""
    module.spawn = script.then(module.spawn, _leave_if_measured)  # type: ignore[attr-defined]
    module.start_processes = script.then(module.start_processes, _leave_if_measured)  # type: ignore[attr-defined]


def wrap_processes(module: ModuleType) -> None:
    """The same for a parent that joins its ranks one by one; a loader's workers, which are daemons, are not ranks."""
    report_crashes_of_ranks(module)
    join = module.BaseProcess.join

    @functools.wraps(join)
    def joined(self: Any, timeout: float | None = None) -> None:
        join(self, timeout)
        if not self.daemon:
            _leave_if_measured()

    module.BaseProcess.join = joined


def _leave_if_measured() -> None:
    orders = current()
    if orders is not None and ended(orders.files):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
