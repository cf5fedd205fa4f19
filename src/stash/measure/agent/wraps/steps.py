"""Where a script's steps meet the climber: optimizer steps, loaders, schedulers, exits.

A step ends where an optimizer steps, whatever the framework around it. This module turns PyTorch's own
hooks into calls on the one climber of the process, and keeps the script from failing over
the extra steps a profile takes.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from stash.measure.run import orders as plans

if TYPE_CHECKING:
    from stash.measure.agent.climb.climber import Climber
    from stash.measure.agent.wraps.loader import Feed, Handle

_climber: Climber | None = None
_scaler_steps = False


def active() -> bool:
    """Whether this very process is climbing (its forked loader workers are not)."""
    return _climber is not None and _climber.pid == os.getpid() and not _climber.finished


def device() -> Any:
    """The device the job trains on."""
    return _climber.device if _climber is not None else None


def announce(handle: Handle) -> Handle:
    """A loop asked a loader for an iterator."""
    if active():
        assert _climber is not None
        _climber.opened(handle)
    return handle


def serve(feed: Feed, handle: Handle) -> Any:
    """A loop asks for its next batch."""
    if not active():
        return feed.real()
    assert _climber is not None
    return _climber.serve(feed, handle)


def let_go(feed: Feed, handle: Handle) -> None:
    """A loop dropped its iterator."""
    if active():
        assert _climber is not None
        _climber.closed(feed, handle)


def on_world_formed() -> None:
    """The job's default process group exists now."""
    if active():
        assert _climber is not None
        _climber.join()


def after(function: Callable[..., Any], then: Callable[[], None]) -> Callable[..., Any]:
    """``function``, followed by ``then()`` when it returns."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        then()
        return result

    return call


def script_ended() -> None:
    """The script is on its way out: its loop is over."""
    if active():
        assert _climber is not None
        _climber.loop_ended()


def abandon() -> None:
    """The script is dying of an exception: stand out of its way."""
    if active():
        assert _climber is not None
        _climber.finished = True


def drifted() -> bool:
    """Whether the replicas of this process have trained apart; also a sign that the script does something."""
    if not active():
        return False
    assert _climber is not None
    _climber.acts()
    return _climber.drifted


def collective_called() -> None:
    """The script called a collective of its own."""
    if active():
        assert _climber is not None
        _climber.acts()


def alive() -> None:
    """A sign of life between steps, from work that takes long."""
    if active():
        assert _climber is not None
        _climber.beat()


def note(text: str) -> None:
    """Say something in the profile."""
    if active():
        assert _climber is not None
        _climber.note(text)


def wrap_optimizer(module: ModuleType) -> None:
    """Hear of every optimizer step of this process."""
    global _climber
    plan = plans.current()
    if plan is None:
        return
    from stash.measure.agent.climb.climber import Climber

    _climber = Climber(plan)
    atexit.register(script_ended)

    def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
        if active() and not _captured():
            assert _climber is not None
            _climber.on_step(optimizer)

    module.register_optimizer_step_post_hook(stepped)


def _captured() -> bool:
    """Whether this step is being captured into a CUDA graph, whose replays nobody sees."""
    cuda = sys.modules.get("torch.cuda")
    if cuda is None or not cuda.is_initialized() or not cuda.is_current_stream_capturing():
        return False
    note("the optimizer step is captured in a CUDA graph, whose replays Stash cannot see")
    return True


def wrap_scaler(module: ModuleType) -> None:
    """A step that AMP's loss scaling skips (gradients overflowed) is a step of the loop all the same."""
    step = module.GradScaler.step

    @functools.wraps(step)
    def counted(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if not active() or _captured():
            return step(self, optimizer, *args, **kwargs)
        assert _climber is not None
        seen = _climber.optimizer_steps
        result = step(self, optimizer, *args, **kwargs)
        if _climber.optimizer_steps == seen:
            note("loss scaling skipped optimizer steps; those steps lack the optimizer's own time")
            _climber.on_step(optimizer)
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
            if not active():
                raise
            return None

    return tolerant


def wrap_spawn(module: ModuleType) -> None:
    """After ``mp.spawn`` the ranks have been profiled: the parent must not go on to use their results."""
    plan = plans.current()

    def leave_if_done() -> None:
        if plan is not None and plan.trace.exists() and '"kind": "end"' in plan.trace.read_text()[-4096:]:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)

    module.spawn = after(module.spawn, leave_if_done)  # type: ignore[attr-defined]
    module.start_processes = after(module.start_processes, leave_if_done)  # type: ignore[attr-defined]
