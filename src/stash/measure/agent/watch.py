"""``stash.loader``, ``stash.step``, ``stash.phase``: lines that let Stash see a loader, an update, parts of steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from stash.measure.agent import script
from stash.measure.protocol.orders import current_orders

T = TypeVar("T")


def loader(batches: Iterable[T]) -> Iterable[T]:
    """Let a profile replay, measure and restart ``batches``, any iterable of training batches.

    ``for batch in stash.loader(loader):`` is all. Outside a profile or a watched run the argument is returned
    unchanged; a ``torch.utils.data.DataLoader`` needs no watching and is returned unchanged too. An iterable that
    cannot be iterated twice ends the profile when it ends; of a watched run only the waits are stamped.
    """
    orders = current_orders()
    if orders is None:
        return batches
    from torch.utils.data import DataLoader

    if not script.active() or isinstance(batches, DataLoader):
        return batches
    return _TimedIterable(batches) if orders.watched else _WatchedIterable(batches)


def step() -> None:
    """Say that a training step ends here: one line after an update that no ``torch.optim`` optimizer makes.

    Does nothing outside a profile.
    """
    if current_orders() is None:
        return
    from stash.measure.agent.wraps.steps import own_update  # outside a profile this costs nothing

    own_update.mark_step()


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Name a part of each step: ``with stash.phase("rollout"):`` around it. A profile tells its time in a step.

    A phase within another one belongs to that. Does nothing outside a profile.
    """
    if current_orders() is None or not script.active():
        yield
        return
    from stash.measure.agent.wraps.waits import ledger  # outside a profile this costs nothing

    begun = ledger.phase_begins(name)
    try:
        yield
    finally:
        if begun:
            ledger.phase_ends()


class _IterableWrap:
    """Stands in for an iterable, which answers for everything but its loops."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name == "_batches":  # of a copy that is being made
            raise AttributeError(name)
        return getattr(self._batches, name)


class _TimedIterable(_IterableWrap):
    """While a run is watched: the batches are the iterable's own, and what they take is stamped."""

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self._batches)
        while True:
            try:
                batch = script.listener().loops.waited(self._batches, batches.__next__)
            except StopIteration:
                return
            yield batch


class _WatchedIterable(_IterableWrap):
    """While a profile is taken."""

    def __iter__(self) -> Any:
        if not script.active():  # any more: nothing is measured, and the script goes on
            return iter(self._batches)
        from stash.measure.agent.data import feeds  # outside a profile this costs nothing

        feed = feeds.watched_feed(self._batches)
        feed.ask_iterator()
        handle = feeds.Handle(feed, feeds.iterate_feed(feed), self._batches)
        script.listener().loops.opened(handle)
        return handle
