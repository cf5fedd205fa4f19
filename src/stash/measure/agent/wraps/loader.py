"""``DataLoader``: a tap between its sampler and its workers, its feed, and the wraps that put both in place.

The tap decides which samples are fetched next, so that a block can start with an empty queue, and a cold and a warm
block can read the same samples; only map-style data sets have any, a stream can but start over. Batches are served
where every loader's iterator hands them out, whatever class stands around it; a handle around what a loop iterates
over tells when the loop ends. What a block reads, and which loop trains, is not known here.
"""

from __future__ import annotations

import functools
import itertools
import os
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from statistics import median_low
from types import ModuleType, SimpleNamespace
from typing import Any

from stash.measure.agent import private, script
from stash.measure.agent.data.feeds import Feed, FeedProgress, Handle
from stash.measure.agent.data.reads import answer_calls, record_reads
from stash.measure.agent.data.tally import own_tally
from stash.measure.agent.script import Function

_LATEST_DRAWS = 32
_QUIET = 0.1
"""Seconds without an exchange before workers are forked."""


class Tap:
    """Stands between a sampler and the loader: hands on its index lists, or a block's own.

    A sampler draws on the training thread, in every step of the job. A block's lists are drawn before it begins, so
    each is handed on after as long as the sampler usually takes for one.
    """

    def __init__(self, sampler: Any, iterator: Iterator[Any]) -> None:
        self._sampler, self._fresh = sampler, iterator
        self.queue: deque[Any] | None = None
        """A block's own index lists; ``None``: those of the sampler."""
        self._endless = False
        """The sampler starts over at its end."""
        self.drawn = 0
        self._latest_draws: deque[float] = deque(maxlen=_LATEST_DRAWS)
        self._spent = 0.0
        """Seconds for each of a block's own lists."""

    @property
    def draw_seconds(self) -> float | None:
        """That the sampler usually takes for a list; ``None`` as long as only the first is known, which may shuffle."""
        return median_low(self._latest_draws) if len(self._latest_draws) > 1 else None

    def __iter__(self) -> Tap:
        return self

    def __next__(self) -> Any:
        if self.queue is None:
            index, _ = self._draw()
        else:
            until = time.perf_counter() + self._spent
            while time.perf_counter() < until:
                pass
            if not self.queue:
                raise StopIteration
            index = self.queue.popleft()
        self.drawn += 1
        return index

    def ask_only_for(self, lists: Iterable[Any]) -> None:
        """A block's own lists from now on."""
        self.queue, self._spent = deque(lists), self.draw_seconds or 0.0

    def must_not_end(self) -> None:
        """Start the sampler over at its end, as a loop that must not run out of batches needs."""
        self._endless = True

    def go_on_endlessly(self) -> None:
        """The sampler's lists from now on, again and again."""
        self.queue, self._endless = None, True

    def _draw(self) -> tuple[Any, bool]:
        """The sampler's next list, and whether it is the first of another epoch."""
        began = time.perf_counter()
        try:
            index = next(self._fresh)
        except StopIteration:
            if not self._endless:
                raise
            self._fresh = iter(self._sampler)
            return next(self._fresh), True
        self._latest_draws.append(time.perf_counter() - began)
        return index, False

    def take_lists(self, count: int) -> list[Any]:
        """The next ``count`` index lists of the sampler, starting over at its end; none if it is empty.

        The remainder at the end of an epoch, shorter than the rest, is passed over: replays have none. (It may
        still come last, where it is read ahead at most.)
        """
        self._endless = True
        taken: list[Any] = []
        with suppress(StopIteration):
            while len(taken) < count:
                index, is_first = self._draw()
                if is_first and taken and _count_samples(taken[-1]) < _count_samples(index):
                    taken.pop()
                taken.append(index)
        return taken


def _count_samples(index: Any) -> int:
    return len(index) if isinstance(index, (list, tuple)) else 1


class IteratorInUse:
    """An iterator of a loader, and how far it has come; one that ``is_drained`` has no batches on their way."""

    def __init__(self, source: Any, loader: Any, is_drained: bool = False) -> None:
        self.source, self.workers = source, int(loader.num_workers)
        self.depth = self.workers * (loader.prefetch_factor or 2)
        self.tap: Tap = private.indices(source)
        self.yielded = self.tap.drawn if is_drained else 0
        self.is_over = False
        self.hand_out = _hands_out.get(type(source).__next__)
        """Hands out its batches; ``None`` where its class has more to do for one than PyTorch's, which asks the feed
        for it in the midst of that."""

    @property
    def is_drained(self) -> bool:
        """Whether all that was asked for has come."""
        return self.yielded >= self.tap.drawn

    def next_batch(self) -> Any:
        """Its next batch; raises StopIteration at its end."""
        try:
            batch = (self.hand_out or next)(self.source)
        except StopIteration:
            self.is_over = True
            raise
        self.yielded += 1
        return batch


_NO_ITERATOR: Any = SimpleNamespace(source=None, workers=0, depth=0, tap=None, is_over=True)
"""In use before there is one, and after."""


class LoaderFeed(Feed):
    """The feed of a ``torch.utils.data.DataLoader``: drained queues, samples that a round's blocks share."""

    def __init__(self, loader: Any) -> None:
        super().__init__("iterable" if private.is_iterable(loader) else "map")
        self._loader = weakref.ref(loader)
        self._used: IteratorInUse = _NO_ITERATOR
        self.is_acting = False
        """It is the feed itself that asks the iterator for a batch, or starts it over."""
        self._of_round: list[Any] = []
        """Index lists that the sampler gave for this round's blocks."""
        self._passed_over = 0
        """Those that it is to give before them, for no block."""
        self._held: Any = None

    @property
    def source(self) -> Any:
        """The iterator in use."""
        return self._used.source

    @property
    def draw_seconds(self) -> float | None:
        """That the sampler usually takes for a batch's indices; a stream has none."""
        tap = self._used.tap if self.kind == "map" else None
        return None if tap is None else tap.draw_seconds

    @property
    def workers(self) -> int:  # type: ignore[override]
        return self._used.workers

    @property
    def depth(self) -> int:  # type: ignore[override]
        return self._used.depth

    @property
    def loader(self) -> Any:
        return self._loader()

    @property
    def length(self) -> int | None:
        loader = self.loader
        sized = None if loader is None else private.count_batches(loader)
        return self.learned.length if sized is None else sized

    def end_workers(self) -> None:
        for worker in private.worker_processes(self.source):
            worker.terminate()

    def adopt(self, iterator: Any) -> None:
        """Serve from this new real iterator."""
        self._use_iterator(IteratorInUse(iterator, self.loader))

    def _use_iterator(self, used: IteratorInUse) -> None:
        is_around = self.under_way and self.source is not used.source
        self.go_round(self._used if is_around else None)
        self._used = used

    def read_on(self, other: Feed) -> None:
        if isinstance(other, LoaderFeed) and other.source is not None:
            setattr(other.source, _FEED, weakref.ref(self))
            self._use_iterator(other._used)

    @contextmanager
    def acting(self) -> Iterator[None]:
        """A context in which it is the feed itself that asks."""
        before, self.is_acting = self.is_acting, True
        try:
            yield
        finally:
            self.is_acting = before

    def serve_endlessly(self, drained: Any = None) -> Any:
        """Serve from this iterator whose queue is empty, or a new one, which is the value, as long as it is asked."""
        self.mode = "warm"
        with self.acting():
            iterator = drained or private.new_iterator(self.loader)
            self._use_iterator(IteratorInUse(iterator, self.loader, is_drained=drained is not None))
        self._used.tap.go_on_endlessly()
        self._fill_queue(self.depth)
        return iterator

    @property
    def under_way(self) -> bool:
        """Whether a loop still reads the iterator in use."""
        return not self._used.is_over and self.loops > 0

    def restore(self, before: FeedProgress, read: int) -> None:
        super().restore(before, read)
        # the loop around the one that is over goes on
        if not self.is_measured and before.around is not None:
            self._use_iterator(before.around)
        elif self.mode in ("warm", "cold"):
            self.ask_for(read)

    def hold(self) -> None:
        self._held = self.loader

    @property
    def signature(self) -> tuple[object, ...]:
        loader = self.loader
        kinds = tuple(type(part) for part in (loader.dataset, loader.sampler, loader.batch_sampler))
        return (self.kind, *kinds, self.length, loader.batch_size, loader.num_workers)

    def release(self) -> None:
        self._used = _NO_ITERATOR  # its workers end with it, unless the loader keeps them

    def real(self) -> Any:
        if self._used.hand_out is not None:
            return self._used.next_batch()
        with self.acting():
            return self._used.next_batch()

    def read_endlessly(self) -> Any:
        used = self._used
        if used.tap is not None and self.kind == "map":
            used.tap.must_not_end()
            # the queue ran dry before the loader was known to train
            if used.workers and used.is_drained:
                self._fill_queue(self.depth)
        return super().read_endlessly()

    def start_over(self) -> bool:
        self._renew()
        return True

    def drain(self) -> None:
        if self._used.is_over:
            return
        self._used.tap.ask_only_for([])
        # take what workers were asked for; a stream may end before that is all there
        if self.kind == "iterable":
            with suppress(StopIteration):
                while self.workers and private.count_outstanding(self.source) > 0:
                    self.real()
            return
        while not self._used.is_drained:
            self.real()
            script.listener().beat()

    def begin_round(self, passed_over: int = 0) -> None:
        self._of_round.clear()
        self._passed_over = passed_over

    def prime(self, count: int, skipped: int = 0) -> None:
        if self.kind == "iterable":
            self._renew()  # the stream starts over: all blocks of a round read the same samples
            self.consume(skipped)
            return
        # at the end of an epoch, its workers are gone
        if self._used.is_over and self.source is not None:
            self._renew()
            self.drain()
        tap, whole = self._used.tap, skipped + count
        if not self._of_round:
            tap.take_lists(self._passed_over)
        self._of_round.extend(tap.take_lists(whole - len(self._of_round)))
        tap.ask_only_for(itertools.islice(itertools.cycle(self._of_round), skipped, whole))
        self._fill_queue(count)

    def ask_for(self, count: int) -> None:
        tap = self._used.tap
        if self.kind == "map" and tap.queue is not None:
            tap.queue.extend(tap.take_lists(count))
            self._fill_queue(count)

    def _fill_queue(self, count: int) -> None:
        """Ask for batches until ``count``, or as many as there are when the queue is full, are on their way."""
        if self.workers:
            for _ in range(min(count, self.depth) - private.count_outstanding(self.source)):
                private.ask_for_one(self.source)

    def _renew(self) -> None:
        """Start the data over, with the workers that are there.

        Only the first time are workers started: from then on they persist, whatever the loader's setting. A thread
        of gloo that enters Python just then, to drop what an exchange left behind, holds a lock that the child of a
        fork waits for in vain (seen with CPython 3.11), so those threads get time to end it.
        """
        settings = vars(self.loader)
        before = settings.get("persistent_workers", False)
        with self.acting():
            try:
                if private.workers_persist(self.source):
                    private.start_over(self.source, self.loader)
                    self.adopt(self.source)
                    return
                private.shut_down(self.source)
                # the loader refuses an ordinary assignment
                settings["persistent_workers"] = self.workers > 0
                time.sleep(_QUIET if self.workers else 0)
                self.adopt(private.new_iterator(self.loader))
            finally:
                settings["persistent_workers"] = before


_feeds: weakref.WeakKeyDictionary[Any, LoaderFeed] = weakref.WeakKeyDictionary()
_hands_out: dict[Function, Function] = {}
"""What PyTorch's iterators hand out batches by, by what is in its place."""
_FEED = "_stash_feed"
"""The attribute by which an iterator knows its feed; asked for twice a batch, so no mapping beside it. Weakly, since
a feed holds its iterator, and workers must end as soon as the script lets go of theirs."""


def wrap(module: ModuleType) -> None:
    """Wrap ``torch.utils.data.dataloader``."""
    private.surround_iterators(module, _tap_indices)
    private.surround_starting_over(module, _hold_start)
    private.wrap_handing_out(module, _serve_batches)
    private.surround_loops(module, _give_handle, _keep_iterator)


def feed_of(loader: Any) -> LoaderFeed:
    """The one feed of a loader."""
    feed = _feeds.get(loader)
    if feed is None:
        feed = _feeds[loader] = LoaderFeed(loader)
    return feed


def _feed_behind(iterator: Any) -> LoaderFeed | None:
    known: weakref.ref[LoaderFeed] | None = getattr(iterator, _FEED, None)
    return None if known is None else known()


def _tap_indices(begin: Function, self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
    """Give an iterator its indices, and put a tap on them; workers find the tally they inherit."""
    own_tally()
    begin(self, loader, *args, **kwargs)
    private.set_indices(self, Tap(private.index_sampler(self), private.indices(self)))
    if script.active():
        feed = feed_of(loader)
        setattr(self, _FEED, weakref.ref(feed))
        # one beside the training loop's is not followed
        beside = feed.under_way and script.listener().loops.is_beside(feed)
        if feed.is_acting or not (feed.is_measured or beside):
            feed.adopt(self)
        if not feed.open_loops.tell_their_end:
            feed.begin_epoch()


def _hold_start(start_over: Function, self: Any, *args: Any, **kwargs: Any) -> None:
    """While blocks decide what is read, the script's next epoch begins without the iterator's starting over …"""
    feed = _feed_behind(self)
    if feed is None or feed.is_acting or not feed.is_measured:
        start_over(self, *args, **kwargs)


def _keep_iterator(make: Function, loader: Any) -> Any:
    """… and without another iterator."""
    feed = _feeds.get(loader)
    if feed is None or feed.is_acting or not feed.is_measured or not script.active():
        return make(loader)
    return feed.source


def _give_handle(get_iterator: Function, loader: Any) -> Any:
    if not script.active():
        return get_iterator(loader)
    feed = feed_of(loader)
    feed.ask_iterator()
    script.listener().loops.iterator_asked(feed)
    iterator = get_iterator(loader)
    # a class may hand on what the class it derives from gave it
    if isinstance(iterator, Handle):
        return iterator
    handle = Handle(feed, iterator, owner=loader)
    script.listener().loops.opened(handle)
    return handle


def _serve_batches(hand_out: Function) -> Function:
    @functools.wraps(hand_out)
    def wrapper(self: Any) -> Any:
        known = getattr(self, _FEED, None)
        feed = known and known()
        listener = script.bus.listener
        # what nobody listens to, and another loop over the loader, goes by itself
        if (
            feed is None
            or feed.is_acting
            or not listener.listens
            or (feed._used.source is not self and feed.mode == "real")
        ):
            return hand_out(self)
        return listener.loops.next_batch(feed)

    _hands_out[wrapper] = hand_out
    return wrapper


def wrap_fetchers(module: ModuleType) -> None:
    """Time the making of batches, and notice every file opened for them; of ``torch.utils.data._utils.fetch``."""
    for cls in private.fetchers(module):
        script.wrap(cls, "fetch", _time_fetch)


def _time_fetch(fetch: Function) -> Function:
    @functools.wraps(fetch)
    def wrapper(self: Any, possibly_batched_index: Any) -> Any:
        answer_calls(os.getpid())
        return record_reads(self, fetch, self, possibly_batched_index)

    return wrapper
