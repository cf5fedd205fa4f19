"""``DataLoader``: taps on its samplers, its feed where batches are handed out, and what making them reads.

Batches are served where every loader's iterator hands them out, whatever class stands around it; a handle around what
a loop iterates over tells when the loop ends.
"""

from __future__ import annotations

import functools
import sys
import time
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from stash.measure.agent import private, script
from stash.measure.agent.data.feeds import Handle
from stash.measure.agent.data.holding import answer_calls
from stash.measure.agent.data.loader_feed import LoaderFeed, Tap
from stash.measure.agent.data.reads import own_tally, recorded, tally

_feeds: weakref.WeakKeyDictionary[Any, LoaderFeed] = weakref.WeakKeyDictionary()
_FEED = "_stash_feed"
"""The attribute by which an iterator knows its feed; asked for twice a batch, so no mapping beside it. Weakly, since
a feed holds its iterator, and workers must end as soon as the script lets go of theirs."""


def wrap(module: ModuleType) -> None:
    """Wrap ``torch.utils.data.dataloader``."""
    private.wrap_iterators(module, _tapped)
    private.wrap_starting_over(module, _held)
    private.wrap_handing_out(module, _served)
    private.wrap_loaders(module, making=_kept, looping=_handled)


def feed_of(loader: Any) -> LoaderFeed:
    """The one feed of a loader."""
    feed = _feeds.get(loader)
    if feed is None:
        feed = _feeds[loader] = LoaderFeed(loader)
    return feed


def _feed_behind(iterator: Any) -> LoaderFeed | None:
    known: weakref.ref[LoaderFeed] | None = getattr(iterator, _FEED, None)
    return None if known is None else known()


def _tapped(begin: Callable[..., None]) -> Callable[..., None]:
    """A method that gives an iterator its indices, followed by a tap on them; workers find the tally they inherit."""

    @functools.wraps(begin)
    def tapped(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        own_tally()
        begin(self, loader, *args, **kwargs)
        private.set_indices(self, Tap(private.index_sampler(self), private.indices(self)))
        if script.active():
            feed = feed_of(loader)
            setattr(self, _FEED, weakref.ref(feed))
            beside = feed.under_way and not feed.without_gradients and not sys.modules["torch"].is_grad_enabled()
            if feed.renewing or not (feed.measured or beside):  # one beside the training loop's is not followed
                feed.adopt(self)
            if not feed.in_handles:
                feed.begin_epoch()

    return tapped


def _held(start_over: Callable[..., None]) -> Callable[..., None]:
    """While blocks decide what is read, the script's next epoch begins without the iterator's starting over."""

    @functools.wraps(start_over)
    def held(self: Any, *args: Any, **kwargs: Any) -> None:
        feed = _feed_behind(self)
        if feed is None or feed.renewing or not feed.measured:
            start_over(self, *args, **kwargs)

    return held


def _kept(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """… and without another iterator."""

    @functools.wraps(make)
    def kept(self: Any) -> Any:
        feed = _feeds.get(self)
        if feed is None or feed.renewing or not feed.measured or not script.active():
            return make(self)
        return feed.source

    return kept


def _handled(get_iterator: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(get_iterator)
    def handled(self: Any) -> Any:
        if not script.active():
            return get_iterator(self)
        feed = feed_of(self)
        feed.asked = None if feed.measured else feed.now()
        iterator = get_iterator(self)
        if isinstance(iterator, Handle):  # a class that hands on what the class it derives from gave it
            return iterator
        return script.opened(Handle(feed, iterator, owner=self))

    return handled


def _served(hand_out: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(hand_out)
    def served(self: Any) -> Any:
        feed = _feed_behind(self)
        if feed is None or feed.drawing:
            return hand_out(self)
        listener = script.current_listener()
        if listener is None or (feed.source is not self and not feed.measured):  # another loop over the same loader
            return hand_out(self)
        return listener.served(feed)

    return served


def wrap_fetchers(module: ModuleType) -> None:
    """Time the making of batches, and hear of every file opened for them; of ``torch.utils.data._utils.fetch``."""
    for cls in private.fetchers(module):
        cls.fetch = _timed(cls.fetch)


def _timed(fetch: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fetch)
    def timed(self: Any, possibly_batched_index: Any) -> Any:
        since = time.perf_counter_ns()
        shared = tally()
        if shared is not None:
            answer_calls(shared)
        return recorded(shared, self, since, fetch, self, possibly_batched_index)

    return timed
