"""What a loader hands out: its batches passed on, replayed, or read anew from drained queues.

A *tap* on the sampler decides which samples the workers fetch next, so a block can start with an empty queue, a cold
and a warm block can read the same samples, and the loop never runs out of batches while a profile is taken. Which
loader trains is for the climber to say.
"""

from __future__ import annotations

import itertools
import sys
import time
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

from stash.measure.agent import private, script
from stash.measure.agent.data import batches
from stash.measure.agent.data.reading import recorded
from stash.measure.agent.data.samples import samples
from stash.measure.agent.data.tally import own_tally

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


class Feed:
    """One loader and what its iterator hands out: ``real`` batches, ``replay``, ``resident``, ``warm``, ``cold``."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.mode = "real"
        self.ring = batches.Ring()
        self.since_step = 0
        self.per_step = 1
        self.wait = 0.0
        self.samples = 0
        self.uncounted = False
        """Among the batches handed out was one whose samples cannot be told."""
        self.startup: float | None = None
        self.asked: float | None = None
        self.training = False
        self.remembers = False
        """A block has read samples that ``again`` would read once more."""

    # What differs between kinds of loader -----------------------------------------------------------

    def real(self) -> Any:
        """The next batch of the real pipeline; StopIteration at its end."""
        raise NotImplementedError

    def start_over(self) -> bool:
        """Begin the data anew after its end; False if that cannot be done."""
        return False

    def drain(self) -> None:
        """Let nothing prefetched remain."""

    def prime(self, count: int, again: bool) -> None:
        """Ask for ``count`` batches: of the last block's samples if ``again``, else of samples not yet read."""

    def end_workers(self) -> None:
        """Nothing it started is left."""

    @property
    def depth(self) -> int:
        """Batches in flight when the queue is full."""
        return 0

    @property
    def workers(self) -> int:
        return 0

    # What all of them share ---------------------------------------------------------------------------

    def next(self) -> Any:
        """Serve the training loop one batch according to the mode."""
        self.since_step += 1
        if self.mode in ("replay", "resident"):
            batch = self.ring.next(self.mode == "resident", script.device())
            self._count(batch)
            return batch
        began = time.perf_counter()
        batch = self.endless() if self.training else self.real()
        ended = time.perf_counter()
        self.wait += ended - began
        if self.asked is not None:
            self.startup, self.asked = ended - self.asked, None
        self._count(batch)
        if self.mode == "real":
            self.ring.offer(batch)
        return batch

    def _count(self, batch: Any) -> None:
        count = samples(batch)
        self.samples += count or 0
        self.uncounted |= count is None

    def endless(self) -> Any:
        """The next real batch, from the start again when the data end."""
        try:
            return self.real()
        except StopIteration:
            if not self.start_over():
                raise
            return self.real()

    def begin(self, mode: str, count: int, again: bool) -> None:
        """Switch to ``mode``; ``warm`` and ``cold`` start with ``count`` batches asked for and none ready."""
        self.drain()
        self.mode, self.wait, self.samples, self.uncounted = mode, 0.0, 0, False
        if mode in ("warm", "cold"):
            self.prime(count, again)
            self.remembers = True

    def consume(self, count: int) -> int:
        """Read ``count`` batches and drop them; the value counts their samples."""
        total = 0
        for _ in range(count):
            total += samples(self.endless()) or 0
            script.alive()
        return total


class LoaderFeed(Feed):
    """The feed of a ``torch.utils.data.DataLoader``."""

    def __init__(self, loader: Any) -> None:
        super().__init__("iterable" if private.iterates(loader) else "map")
        self._loader = weakref.ref(loader)
        self.source: Any = None
        self.yielded = 0
        self._last: list[Any] = []

    @property
    def loader(self) -> Any:
        return self._loader()

    @property
    def depth(self) -> int:
        loader = self.loader
        return int(loader.num_workers * (loader.prefetch_factor or 2)) if loader.num_workers else 0

    @property
    def workers(self) -> int:
        return int(self.loader.num_workers)

    @property
    def tap(self) -> Tap:
        tap: Tap = private.indices(self.source)
        return tap

    def end_workers(self) -> None:
        for worker in private.worker_processes(self.source):
            worker.terminate()

    def adopt(self, iterator: Any) -> None:
        """Serve from this new real iterator."""
        self.source, self.yielded = iterator, 0

    def real(self) -> Any:
        batch = next(self.source)
        self.yielded += 1
        return batch

    def endless(self) -> Any:
        if self.kind == "map":
            self.tap.endless = True
            if self.tap.drawn == self.yielded:  # the queue ran dry before the loader was known to train
                self._fill(self.depth)
        return super().endless()

    def start_over(self) -> bool:
        self._renew()
        return True

    def drain(self) -> None:
        if self.source is None:
            return
        self.tap.queue = deque()
        if self.kind == "iterable":
            self._drain_stream()
            return
        while self.tap.drawn > self.yielded:
            self.real()
            script.alive()

    def _drain_stream(self) -> None:
        """Take what workers were asked for; a stream may end before that is all there."""
        try:
            while self.workers and private.outstanding(self.source) > 0:
                self.real()
        except StopIteration:
            pass

    def prime(self, count: int, again: bool) -> None:
        if self.kind == "iterable":
            self._renew()  # the stream starts over: cold and warm read the same samples
            return
        if not again or not self._last:
            self._last = self.tap.take(count)
        self.tap.queue = deque(itertools.islice(itertools.cycle(self._last), count))
        self._fill(count)

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
        if private.workers_persist(self.source):
            private.start_over(self.source, self.loader)
            self.adopt(self.source)
            return
        private.shut_down(self.source)
        settings = vars(self.loader)
        before = settings["persistent_workers"]
        settings["persistent_workers"] = self.workers > 0  # the loader refuses an ordinary assignment
        time.sleep(_QUIET if self.workers else 0)
        try:
            self.adopt(private.new_iterator(self.loader))
        finally:
            settings["persistent_workers"] = before


class WatchedFeed(Feed):
    """The feed of any iterable handed to ``stash.watch``: it can be restarted, not steered."""

    def __init__(self, iterable: Any) -> None:
        super().__init__("watched")
        self._iterable = iterable
        self._iterator = iter(iterable)

    def real(self) -> Any:
        shared = own_tally()
        if shared is None or shared.idle:
            return next(self._iterator)
        with recorded(shared):
            return next(self._iterator)

    def start_over(self) -> bool:
        if iter(self._iterable) is self._iterable:
            return False
        self._iterator = iter(self._iterable)
        return True

    def prime(self, count: int, again: bool) -> None:
        self.start_over()


class Handle:
    """What a training loop iterates over; it tells when the loop lets go of it."""

    def __init__(self, feed: Feed, real: Any = None, owner: Any = None) -> None:
        self.feed, self._real = feed, real
        self._owner = owner  # a loader that exists only in a for statement must live as long as its loop
        self.served = 0

    def __iter__(self) -> Handle:
        return self

    def __next__(self) -> Any:
        self.served += 1
        return script.served(self)

    def __len__(self) -> int:
        return len(self._real)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or self.__dict__.get("_real") is None:
            raise AttributeError(name)
        return getattr(self._real, name)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            script.closed(self)
