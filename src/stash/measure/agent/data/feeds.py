"""What a loader hands out: its batches passed on, replayed, or read anew from drained queues.

Epochs stay as long as the script's own: a feed knows how many batches it has handed out since a loop began, and how
many there are. Which loader trains, and what a loop gets, is for the climber to say.
"""

from __future__ import annotations

import itertools
import time
import weakref
from collections import deque
from typing import Any

from stash.measure.agent import private, script
from stash.measure.agent.data import batches
from stash.measure.agent.data.reading import recorded
from stash.measure.agent.data.samples import samples
from stash.measure.agent.data.tally import own_tally
from stash.measure.agent.data.taps import Tap

_QUIET = 0.1
"""Seconds without an exchange before workers are forked."""


class Feed:
    """One loader and what its iterator hands out: ``real`` batches, ``replay``, ``resident``, ``warm``, ``cold``."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.mode = "real"
        self.ring = batches.Ring()
        self.turn = 0
        """Batches handed out since the last loop over it began."""
        self.limit: int | None = None
        """How many there are in that epoch; ``None`` if nobody knows."""
        self.goes_on = False
        """Never end: the script's own epochs are too short to be measured in."""
        self.loops = 0
        """Loops that hold an iterator over it, frameworks' own around the script's included."""
        self.in_handles = False
        """Its loops tell when they end; else only the end of its data does."""
        self.stands_for: Feed | None = None
        """The training feed that this one's loader, made anew for the next epoch, is another loader for."""
        self.since_step = 0
        self.steps = 0
        """How many steps of the job it was read for."""
        self.per_step = 1
        self.wait = 0.0
        self.samples = 0
        self.uncounted = False
        """Among the batches handed out was one whose samples cannot be told."""
        self.startup: float | None = None
        self.asked: float | None = None
        self.training = False
        self.first_at_pass = 0
        """How many backward passes there had been when the first batch of this epoch was handed out."""
        self.remembers = False
        """A block has read samples that ``again`` would read once more."""
        self._batches = 0
        self._epoch: int | None = None

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

    @property
    def length(self) -> int | None:
        """Batches in an epoch; ``None`` if nobody knows."""
        return self._epoch

    # What all of them share ---------------------------------------------------------------------------

    @property
    def measured(self) -> bool:
        """Whether what it hands out is a block's choice, and no longer the script's."""
        return self.mode != "real"

    def begin_epoch(self) -> None:
        """A loop over it begins."""
        self.turn, self.limit = 0, self.length

    @property
    def at_end(self) -> bool:
        """Whether the script's own epoch is over."""
        return self.measured and self.limit is not None and self.turn >= self.limit and not self.goes_on

    def release(self) -> None:
        """Nobody will read on where the last loop stopped."""

    def hold(self) -> None:
        """Blocks read from it from now on, whatever becomes of the script's own reference to it."""

    @property
    def like(self) -> tuple[object, ...]:
        """What a loader made anew for another epoch has in common with this one."""
        return (self.kind,)

    def step_ended(self) -> None:
        """An optimizer stepped: learn how many batches a step usually takes."""
        if self.since_step:
            self.steps, self._batches = self.steps + 1, self._batches + self.since_step
            self.per_step = max(1, round(self._batches / self.steps))  # frameworks that read ahead take turns
        self.since_step = 0

    def next(self) -> Any:
        """Serve the training loop one batch according to the mode."""
        batch = self._next()
        self.turn += 1
        self.since_step += 1
        return batch

    def _next(self) -> Any:
        if self.mode in ("replay", "resident"):
            batch = self.ring.next(self.mode == "resident", script.device())
            self._count(batch)
            return batch
        began = time.perf_counter()
        batch = self.endless() if self.measured or self.goes_on else self._until_the_end()
        ended = time.perf_counter()
        self.wait += ended - began
        if self.asked is not None:
            self.startup, self.asked = ended - self.asked, None
        self._count(batch)
        if self.mode == "real":
            self.ring.offer(batch)
        return batch

    def _until_the_end(self) -> Any:
        try:
            return self.real()
        except StopIteration:
            self._epoch = self.turn
            raise

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
        """The iterator in use."""
        self.yielded = 0
        self.drawing = False
        """It is the feed itself that asks the iterator for a batch."""
        self.renewing = False
        """It is the feed itself that starts the iterator over."""
        self._ended = False
        self._last: list[Any] = []
        self._held: Any = None

    @property
    def loader(self) -> Any:
        return self._loader()

    @property
    def length(self) -> int | None:
        loader = self.loader
        sized = None if loader is None else private.length(loader)
        return self._epoch if sized is None else sized

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
        self.source, self.yielded, self._ended = iterator, 0, False

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
            self.tap.endless = True
            if self.tap.drawn == self.yielded:  # the queue ran dry before the loader was known to train
                self._fill(self.depth)
        return super().endless()

    def start_over(self) -> bool:
        self._renew()
        return True

    def drain(self) -> None:
        if self.source is None or self._ended:
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
        if self._ended:  # at the end of an epoch, its workers are gone
            self._renew()
            self.drain()
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


class WatchedFeed(Feed):
    """The feed of any iterable handed to ``stash.watch``: it can be restarted, not steered."""

    def __init__(self, iterable: Any) -> None:
        super().__init__("watched")
        self._iterable = iterable
        self._iterator: Any = None

    def begin_epoch(self) -> None:
        super().begin_epoch()
        if not self.measured:
            self._iterator = iter(self._iterable)

    @property
    def length(self) -> int | None:
        try:
            return len(self._iterable)
        except TypeError:
            return self._epoch

    def real(self) -> Any:
        if self._iterator is None:
            self._iterator = iter(self._iterable)
        shared = own_tally()
        if shared is None or shared.idle:
            return next(self._iterator)
        with recorded(shared, self):
            return next(self._iterator)

    def start_over(self) -> bool:
        if iter(self._iterable) is self._iterable:
            return False
        self._iterator = iter(self._iterable)
        return True

    def prime(self, count: int, again: bool) -> None:
        self.start_over()


_watched: dict[int, WatchedFeed] = {}


def watched_feed(iterable: Any) -> WatchedFeed:
    """The one feed of an iterable that is no ``DataLoader``."""
    return _watched.setdefault(id(iterable), WatchedFeed(iterable))  # which holds the iterable: no id comes twice
