"""``DataLoader``: a tap between its sampler and its workers, its feed, and the wraps that put both in place.

The tap decides which samples are fetched next, so that a block can start with an empty queue, and a cold and a warm
block can read the same samples; only map-style data sets have any, a stream can but start over. Batches are served
where every loader's iterator hands them out, whatever class stands around it; a handle around what a loop iterates
over tells when the loop ends. What a block reads, and which loop trains, is not known here.
"""

from __future__ import annotations

import functools
import itertools
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import ModuleType
from typing import Any

from stash.measure.agent import private, script
from stash.measure.agent.data.feeds import Feed, Handed, Handle
from stash.measure.agent.data.reads import answer_calls, recorded
from stash.measure.agent.data.tally import own_tally, tally

_QUIET = 0.1
"""Seconds without an exchange before workers are forked."""


class Tap:
    """Stands between a sampler and the loader: hands on its index lists, or a block's own."""

    def __init__(self, sampler: Any, iterator: Iterator[Any]) -> None:
        self._sampler, self._fresh = sampler, iterator
        self.queue: deque[Any] | None = None
        """A block's own index lists; ``None``: those of the sampler."""
        self.endless = False
        """Start the sampler over at its end, as a loop that must not run out of batches needs."""
        self.drawn = 0
        self._epochs = 0

    def __iter__(self) -> Tap:
        return self

    def __next__(self) -> Any:
        if self.queue is None:
            index = self._next_fresh()
        elif self.queue:
            index = self.queue.popleft()
        else:
            raise StopIteration
        self.drawn += 1
        return index

    def _next_fresh(self) -> Any:
        try:
            return next(self._fresh)
        except StopIteration:
            if not self.endless:
                raise
        self._fresh, self._epochs = iter(self._sampler), self._epochs + 1
        return next(self._fresh)

    def take(self, count: int) -> list[Any]:
        """The next ``count`` index lists of the sampler, starting over at its end; none if it is empty.

        The remainder at the end of an epoch, shorter than the rest, is passed over: replays have none. (It may
        still come last, where it is read ahead at most.)
        """
        self.endless = True
        taken: list[Any] = []
        while len(taken) < count:
            epochs = self._epochs
            try:
                index = self._next_fresh()
            except StopIteration:
                break
            if self._epochs > epochs and taken and _length(taken[-1]) < _length(index):
                taken.pop()
            taken.append(index)
        return taken


def _length(index: Any) -> int:
    return len(index) if isinstance(index, (list, tuple)) else 1


class LoaderFeed(Feed):
    """The feed of a ``torch.utils.data.DataLoader``: drained queues, samples that a round's blocks share."""

    def __init__(self, loader: Any) -> None:
        super().__init__("iterable" if private.iterates(loader) else "map")
        self._loader = weakref.ref(loader)
        self.source: Any = None
        """The iterator in use."""
        self.yielded = 0
        self.drawing = False
        """It is the feed itself that asks the iterator for a batch."""
        self.renewing = False
        """It is the feed itself that starts the iterator over."""
        self._ended = False
        self._of_round: list[Any] = []
        """Index lists that the sampler gave for this round's blocks."""
        self._held: Any = None
        self.tap: Tap

    @property
    def loader(self) -> Any:
        return self._loader()

    @property
    def length(self) -> int | None:
        loader = self.loader
        sized = None if loader is None else private.length(loader)
        return self.seen_length if sized is None else sized

    def end_workers(self) -> None:
        for worker in private.worker_processes(self.source):
            worker.terminate()

    def adopt(self, iterator: Any) -> None:
        """Serve from this new real iterator."""
        self.around = (self.source, self.yielded) if self.under_way and self.source is not iterator else None
        self.source, self.yielded, self._ended = iterator, 0, False
        self.tap, loader = private.indices(iterator), self.loader
        self.workers = int(loader.num_workers)
        self.depth = self.workers * (loader.prefetch_factor or 2)

    def read_on(self, other: Feed) -> None:
        if isinstance(other, LoaderFeed) and other.source is not None:
            setattr(other.source, _FEED, weakref.ref(self))
            self.adopt(other.source)
            self.yielded = other.yielded

    @property
    def under_way(self) -> bool:
        """Whether a loop still reads the iterator in use."""
        return self.source is not None and not self._ended and self.loops > 0

    def restore(self, before: Handed, read: int) -> None:
        super().restore(before, read)
        if not self.measured and before.around is not None:  # the loop around the one that is over goes on
            iterator, yielded = before.around
            self.adopt(iterator)
            self.yielded = yielded
        elif self.mode in ("warm", "cold"):
            self.ask_for(read)

    def hold(self) -> None:
        self._held = self.loader

    @property
    def like(self) -> tuple[object, ...]:
        loader = self.loader
        kinds = tuple(type(part) for part in (loader.dataset, loader.sampler, loader.batch_sampler))
        return (self.kind, *kinds, self.length, loader.batch_size, loader.num_workers)

    def release(self) -> None:
        self.source = None  # its workers end with it, unless the loader keeps them

    def real(self) -> Any:
        self.drawing = True
        try:
            batch = next(self.source)
        except StopIteration:
            self._ended = True
            raise
        finally:
            self.drawing = False
        self.yielded += 1
        return batch

    def endless(self) -> Any:
        if self.kind == "map":
            tap = self.tap
            tap.endless = True
            if self.workers and tap.drawn == self.yielded:  # the queue ran dry before the loader was known to train
                self.refill_queue()
        return super().endless()

    def start_over(self) -> bool:
        self._renew()
        return True

    def drain(self) -> None:
        if self.source is None or self._ended:
            return
        self.tap.queue = deque()
        if self.kind == "iterable":  # take what workers were asked for; it may end before that is all there
            with suppress(StopIteration):
                while self.workers and private.outstanding(self.source) > 0:
                    self.real()
            return
        while self.tap.drawn > self.yielded:
            self.real()
            script.listener().beat()

    def begin_round(self) -> None:
        self._of_round = []

    def prime(self, count: int, skipped: int = 0) -> None:
        if self.kind == "iterable":
            self._renew()  # the stream starts over: all blocks of a round read the same samples
            self.consume(skipped)
            return
        if self._ended:  # at the end of an epoch, its workers are gone
            self._renew()
            self.drain()
        whole = skipped + count
        self._of_round += self.tap.take(whole - len(self._of_round))
        self.tap.queue = deque(itertools.islice(itertools.cycle(self._of_round), skipped, whole))
        self._fill(count)

    def ask_for(self, count: int) -> None:
        if self.kind == "map" and self.tap.queue is not None:
            self.tap.queue.extend(self.tap.take(count))
            self._fill(count)

    def refill_queue(self) -> None:
        """Ask for as many batches as are ahead when the queue is full."""
        self._fill(self.depth)

    def _fill(self, count: int) -> None:
        if self.workers:
            for _ in range(min(count, self.depth) - private.outstanding(self.source)):
                private.ask_for_one(self.source)

    def _renew(self) -> None:
        """Start the data over, with the workers that are there.

        Only the first time are workers started: from then on they persist, whatever the loader's setting. A thread
        of gloo that enters Python just then, to drop what an exchange left behind, holds a lock that the child of a
        fork waits for in vain (seen with CPython 3.11), so those threads get time to end it.
        """
        settings = vars(self.loader)
        before = settings.get("persistent_workers", False)
        self.renewing = True
        try:
            if private.workers_persist(self.source):
                private.start_over(self.source, self.loader)
                self.adopt(self.source)
                return
            private.shut_down(self.source)
            settings["persistent_workers"] = self.workers > 0  # the loader refuses an ordinary assignment
            time.sleep(_QUIET if self.workers else 0)
            self.adopt(private.new_iterator(self.loader, self.source))
        finally:
            settings["persistent_workers"] = before
            self.renewing = False


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
        script.listener().loops.iterator_asked(feed)
        iterator = get_iterator(self)
        if isinstance(iterator, Handle):  # a class that hands on what the class it derives from gave it
            return iterator
        handle = Handle(feed, iterator, owner=self)
        script.listener().loops.opened(handle)
        return handle

    return handled


def _served(hand_out: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(hand_out)
    def served(self: Any) -> Any:
        feed = _feed_behind(self)
        if feed is None or feed.drawing:
            return hand_out(self)
        listener = script.bus.listener
        if not listener.listens or (feed.source is not self and not feed.measured):  # another loop over the loader
            return hand_out(self)
        return listener.loops.next_batch(feed)

    return served


def wrap_fetchers(module: ModuleType) -> None:
    """Time the making of batches, and notice every file opened for them; of ``torch.utils.data._utils.fetch``."""
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
