"""``DataLoader``: taps on its samplers, handles in place of its iterators, and what making its batches reads."""

from __future__ import annotations

import functools
import sys
import time
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from stash.measure.agent import private, script
from stash.measure.agent.data.feeds import Handle, LoaderFeed, Tap
from stash.measure.agent.data.holding import answer_calls
from stash.measure.agent.data.reading import recorded
from stash.measure.agent.data.tally import own_tally, tally

PLENTY = 1_000_000
"""Batches or steps: more than any profile takes."""
_COUNTING = {"lightning", "pytorch_lightning", "lightning_fabric", "transformers", "accelerate"}
_feeds: weakref.WeakKeyDictionary[Any, LoaderFeed] = weakref.WeakKeyDictionary()


def wrap(module: ModuleType) -> None:
    """Wrap ``torch.utils.data.dataloader``."""
    private.wrap_iterators(module, _tapped)
    loader_class = module.DataLoader
    loader_class.__iter__ = _handled(loader_class.__iter__)
    loader_class.__len__ = _stretched(loader_class.__len__)


def _tapped(begin: Callable[..., None]) -> Callable[..., None]:
    """A method that gives an iterator its indices, followed by a tap on them; workers find the tally they inherit."""

    @functools.wraps(begin)
    def tapped(self: Any, *args: Any, **kwargs: Any) -> None:
        own_tally()
        begin(self, *args, **kwargs)
        private.set_indices(self, Tap(private.index_sampler(self), private.indices(self)))

    return tapped


def _handled(get_iterator: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(get_iterator)
    def handled(self: Any) -> Any:
        if not script.active():
            return get_iterator(self)
        feed = _feeds.get(self)
        if feed is None:
            feed = _feeds[self] = LoaderFeed(self)
        elif feed.training and feed.mode != "real":  # the next epoch of a loop that is being measured
            return script.opened(Handle(feed, feed.source, owner=self))
        feed.asked = time.perf_counter()
        iterator = get_iterator(self)
        feed.adopt(iterator)
        return script.opened(Handle(feed, iterator, owner=self))

    return handled


def _stretched(length: Callable[[Any], int]) -> Callable[[Any], int]:
    """Let frameworks that count their own steps (and nobody else) see a loader that is practically endless."""

    @functools.wraps(length)
    def stretched(self: Any) -> int:
        real = length(self)
        caller = sys._getframe(1).f_globals.get("__name__", "").partition(".")[0]
        return max(real, PLENTY) if script.active() and caller in _COUNTING else real

    return stretched


def wrap_fetchers(module: ModuleType) -> None:
    """Time the making of batches, and hear of every file opened for them; of ``torch.utils.data._utils.fetch``."""
    for cls in private.fetchers(module):
        cls.fetch = _timed(cls.fetch)


def _timed(fetch: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fetch)
    def timed(self: Any, possibly_batched_index: Any) -> Any:
        shared = tally()
        if shared is not None:
            answer_calls(shared)
        if shared is None or shared.idle:
            return fetch(self, possibly_batched_index)
        with recorded(shared):
            return fetch(self, possibly_batched_index)

    return timed
