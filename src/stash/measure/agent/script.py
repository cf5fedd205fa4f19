"""What the training script does, told to whoever listens: its steps, its loaders' iterators, its saves, its end.

The wraps around PyTorch call these functions and one listener, the climber, hears of it. Without a listener (outside
a profile, in a loader's forked workers, once the climb is over) the script goes on as if Stash were not there. Knows
neither PyTorch nor the climb.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Listener(Protocol):
    """Who is told what the script does.

    A handle stands for the iterator that a loop took from a loader, a feed for the loader itself.
    """

    listens: bool
    """False once there is nothing more to hear: the script is on its own again."""

    @property
    def drifted(self) -> bool:
        """Whether the replicas of this process have trained apart."""

    def opened(self, handle: Any) -> None:
        """A loop took an iterator."""

    def enough(self, handle: Any) -> bool:
        """Whether that loop is to end now."""

    def served(self, feed: Any) -> Any:
        """A loader is asked for its next batch; the value is that batch, or StopIteration is raised."""

    def closed(self, handle: Any) -> None:
        """A loop dropped its iterator."""

    def world_formed(self) -> None:
        """The job's default process group exists now."""

    def stepped(self, optimizer: Any) -> None:
        """An optimizer stepped."""

    def backward_ended(self) -> None:
        """A backward pass is over, its exchange included."""

    def acted(self) -> None:
        """The script called a collective of its own."""

    def saved(self) -> None:
        """The script is about to save."""

    def loop_ended(self) -> None:
        """The script's training loop is over."""

    def exits(self, last: bool) -> None:
        """The script's process ends by itself; ``last``: nothing of the script is left to run."""

    def abandoned(self) -> None:
        """The script is dying of an exception: stand out of its way."""

    def beat(self) -> None:
        """A sign of life from work that takes long."""

    def note(self, text: str) -> None:
        """Say something in the profile."""


class _EventBus:
    """The listener of this process."""

    listener: Listener | None = None
    passes = 0


def subscribe(listener: Listener) -> None:
    """From now on this process's script is heard by ``listener``."""
    _EventBus.listener = listener


def _forget() -> None:
    _EventBus.listener = None


os.register_at_fork(after_in_child=_forget)  # a fork inherits the variable and not the job


def current_listener() -> Listener | None:
    """Whoever listens in this very process; None if nobody does, or not any more."""
    own = _EventBus.listener
    return own if own is not None and own.listens else None


def active() -> bool:
    """Whether anybody listens in this very process."""
    return current_listener() is not None


def drifted() -> bool:
    """Whether the replicas of this very process have trained apart; so they have when nobody listens any more."""
    own = _EventBus.listener
    return own is not None and own.drifted


def opened(handle: T) -> T:
    """A loop asked a loader for an iterator, which is handed back."""
    if (listener := current_listener()) is not None:
        listener.opened(handle)
    return handle


def enough(handle: Any) -> bool:
    """Whether that loop is to end now, before its loader does."""
    listener = current_listener()
    return listener is not None and listener.enough(handle)


def served(feed: Any) -> Any:
    """The next batch of a loader."""
    listener = current_listener()
    return listener.served(feed) if listener is not None else feed.real()


def closed(handle: Any) -> None:
    """A loop dropped its iterator."""
    if (listener := current_listener()) is not None:
        listener.closed(handle)


def world_formed() -> None:
    """The job's default process group exists now."""
    if (listener := current_listener()) is not None:
        listener.world_formed()


def stepped(optimizer: Any) -> None:
    """An optimizer stepped."""
    if (listener := current_listener()) is not None:
        listener.stepped(optimizer)


def passed() -> None:
    """A backward pass begins."""
    _EventBus.passes += 1


def backward_ended() -> None:
    """That backward pass is over."""
    if (listener := current_listener()) is not None:
        listener.backward_ended()


def passes() -> int:
    """Backward passes so far: what validation has none of."""
    return _EventBus.passes


def acted() -> None:
    """The script called a collective of its own."""
    if (listener := current_listener()) is not None:
        listener.acted()


def saves_drifted() -> bool:
    """The script is about to save; whether that would be the weights of replicas that have trained apart."""
    if (listener := current_listener()) is not None:
        listener.saved()
    return drifted()


def ended() -> None:
    """The script's training loop is over."""
    if (listener := current_listener()) is not None:
        listener.loop_ended()


def exits(last: bool = True) -> None:
    """The script's process ends by itself, with an exit code of its own; heard also when nothing else is."""
    if (own := _EventBus.listener) is not None:
        own.exits(last)


def abandoned() -> None:
    """The script is dying of an exception."""
    if (listener := current_listener()) is not None:
        listener.abandoned()


def alive() -> None:
    """A sign of life between steps."""
    if (listener := current_listener()) is not None:
        listener.beat()


def note(text: str) -> None:
    """Say something in the profile."""
    if (listener := current_listener()) is not None:
        listener.note(text)


def then(function: Callable[P, T], tell: Callable[[], None]) -> Callable[P, T]:
    """``function``, followed by ``tell()`` when it returns."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        result = function(*args, **kwargs)
        tell()
        return result

    return call
