"""What the training script does, passed on to one listener: its steps, its loops over loaders, its saves, its end.

The wraps around PyTorch tell ``listener()``, which is the ladder's runner while it measures. Outside a profile, in a
loader's forked workers and once measuring is over it is one that lets the script go on as if Stash were not there.
Knows neither PyTorch nor the ladder.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from stash.measure.agent.thread_events import ThreadEvent

T = TypeVar("T")
Function = Callable[..., Any]
"""Of the script, or of PyTorch."""
hard_exit = os._exit
"""For Stash itself: the script's own ``os._exit`` may be wrapped."""


class LoopListener:
    """Knows of loops over loaders; this one leaves them alone.

    A handle stands for the iterator that a loop took from a loader, a feed for the loader itself.
    """

    def iterator_asked(self, feed: Any) -> None:
        """A loop is about to take an iterator."""

    def opened(self, handle: Any) -> None:
        """A loop took an iterator."""

    def should_stop(self, handle: Any) -> bool:
        """Whether that loop is to end now, before its loader does."""
        return False

    def next_batch(self, feed: Any) -> Any:
        """The batch that a loader hands out next; raises StopIteration at the end."""
        return feed.real()

    def closed(self, handle: Any) -> None:
        """A loop dropped its iterator."""

    def is_beside(self, feed: Any) -> bool:
        """Whether what is read of it now is no step's."""
        return False

    def started(self, loader: Any, take: Callable[..., T], *arguments: Any) -> T:
        """``take(*arguments)``, the iterator that a loop asks ``loader`` for."""
        return take(*arguments)

    def waited(self, source: Any, take: Callable[..., T], *arguments: Any) -> T:
        """``take(*arguments)``, which a loop waits for; ``source`` is what it comes from."""
        return take(*arguments)

    def acted(self, saved: bool = False) -> None:
        """The script does something else than train: it called a collective of its own, or is about to save."""


class Listener:
    """Knows of everything; this one does nothing about it."""

    listens = False
    """Whether it is to know of anything but the script's exit."""
    counts = False
    """Whether it is to know of steps all the same."""
    loops = LoopListener()
    """Knows of loops."""

    def handle(self, event: ThreadEvent, about: Any = None) -> None:
        """Something happened on the calling thread; ``about``: what the event says that comes with it."""

    def has_drifted(self) -> bool:
        """Whether the replicas of this process have trained apart; asked also once it listens no more."""
        return False

    def needs_checkpoints(self) -> bool:
        """Whether the script reads what it saves, and fails where nothing is in it."""
        return False

    def worked_since(self, moment: float) -> None:
        """Up to now the calling thread worked for Stash, from that moment of ``time.perf_counter`` on."""

    def world_formed(self) -> None:
        """The job's default process group exists now."""

    def stepped(self, optimizer: Any) -> None:
        """An optimizer stepped."""

    def clears(self, owner: Any = None) -> None:
        """Gradients of an optimizer, or a module, are about to be cleared."""

    def skipped(self, optimizer: Any) -> None:
        """Loss scaling kept an optimizer from its step, which is one of the loop all the same."""
        self.note("loss scaling skipped optimizer steps; those steps lack the optimizer's own time")
        self.stepped(optimizer)

    def give_up(self, error: Exception) -> None:
        """It failed; raises ``error`` unless the script is to go on without it."""
        raise error

    def loop_ended(self) -> None:
        """The script's training loop is over."""

    def exits(self, last: bool) -> None:
        """The script's process ends by itself; ``last``: nothing of the script is left to run."""

    def abandoned(self) -> None:
        """The script is dying of an exception: stand out of its way."""

    def beat(self) -> None:
        """Work that takes long shows a sign of life."""

    def note(self, text: str) -> None:
        """Say something in the profile."""


_NO_LISTENER = Listener()


class _EventBus:
    """The listener of this process, and how many backward passes have begun in it.

    One object: a class's own attributes are what the interpreter looks up slowly once they were changed.
    """

    __slots__ = ("listener", "passes")

    def __init__(self) -> None:
        self.listener = _NO_LISTENER
        self.passes = 0

    def subscribe(self, listener: Listener = _NO_LISTENER) -> None:
        """Tell ``listener`` from now on what this process's script does; without one, nobody any more."""
        self.listener = listener


bus = _EventBus()
"""Read by what comes to it in every step; all others ask ``listener()`` and ``passes()``."""


subscribe = unsubscribe = bus.subscribe
os.register_at_fork(after_in_child=unsubscribe)  # a fork inherits the variable and not the job


def listener() -> Listener:
    """Whom to tell what the script does."""
    own = bus.listener
    return own if own.listens else _NO_LISTENER


def active() -> bool:
    """Whether this very process is being measured."""
    return bus.listener.listens


def drifted() -> bool:
    """Whether the replicas of this very process have trained apart, whether it is still measured or not."""
    return bus.listener.has_drifted()


def refuses_save() -> bool:
    """Tell that the script is about to save; whether it must not: replicas have drifted, and nothing reads the file."""
    listener().loops.acted(saved=True)
    return drifted() and not bus.listener.needs_checkpoints()


def exits(last: bool = True) -> None:
    """Tell that the script's process ends by itself, with its own exit code, whether it is still measured or not."""
    bus.listener.exits(last)


def publish(event: ThreadEvent, about: Any = None) -> None:
    """Tell that something happened on the calling thread."""
    own = bus.listener
    if own.listens:
        try:
            own.handle(event, about)
        except Exception as error:
            own.give_up(error)


@contextlib.contextmanager
def saving() -> Iterator[None]:
    """A context in which the calling thread saves a checkpoint."""
    publish(ThreadEvent.SAVE_BEGINS)
    try:
        yield
    finally:
        publish(ThreadEvent.SAVE_ENDED)


def backward_begins() -> None:
    """Count a backward pass, and tell of it."""
    bus.passes += 1
    publish(ThreadEvent.BACKWARD_BEGINS)


def passes() -> int:
    """Backward passes so far: what validation has none of."""
    return bus.passes


def note(text: str) -> None:
    """Say something in the profile."""
    listener().note(text)


def run_collective(call: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """``call(*args, **kwargs)``, which is a collective that the calling thread takes part in, or a wait for one."""
    publish(ThreadEvent.COLLECTIVE_BEGINS)
    try:
        return call(*args, **kwargs)
    finally:
        publish(ThreadEvent.COLLECTIVE_ENDED)


def report_hard_exits() -> None:
    """Have ``os._exit(0)``, by which some scripts end where a library would crash, tell that the process ends."""

    def leave(status: int) -> None:
        if status == 0:
            exits()
        hard_exit(status)

    put(os, _exit=leave)


def put(owner: Any, **values: Any) -> None:
    """Set attributes of a module, a class or an object that is not Stash's own: all that is wrapped is wrapped so."""
    for name, value in values.items():
        setattr(owner, name, value)


def wrap(owner: Any, name: str, around: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Put ``around(original, *args, **kwargs)`` in the place of a function of a module or class."""
    put(owner, **{name: around(getattr(owner, name), *args, **kwargs)})


def surround(owner: Any, name: str, body: Callable[..., Any]) -> None:
    """The same with ``body(original, *args, **kwargs)``; costs a Python call more than ``wrap``."""
    wrap(owner, name, functools.partial(surrounded, body))


def surrounded(body: Callable[..., Any], original: Function) -> Function:
    """``body(original, *args, **kwargs)`` as a function of the original's name."""

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return body(original, *args, **kwargs)

    return wrapper


def after(owner: Any, name: str, act: Callable[..., object]) -> None:
    """Have ``act`` called after each return from a function of a module or class, with what that was given."""

    def run_both(function: Function, *args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        act(*args, **kwargs)
        return result

    surround(owner, name, run_both)
