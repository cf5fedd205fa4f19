"""What a training loop iterates over: its loader's batches passed on, replayed, or read again from drained queues.

Epochs stay as long as the script's own: a feed knows how many batches it has handed out since a loop began, and how
many there are. Which loader trains, and what a loop gets, is for ``runner/loops`` to say.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from stash.measure.agent import script
from stash.measure.agent.data.batches import samples
from stash.measure.agent.data.reads import recorded
from stash.measure.agent.data.ring import Ring
from stash.measure.agent.data.tally import own_tally
from stash.measure.protocol.stamped import StepStage

_BETWEEN, _FORWARD = int(StepStage.BETWEEN), int(StepStage.FORWARD)


@dataclass(frozen=True)
class Handed:
    """How far a feed's loops and the step under way have come."""

    turn: int
    limit: int | None
    steps_of_epoch: int
    since_step: int
    wait: float
    uncounted: bool
    around: tuple[Any, int] | None = None
    """The iterator of a loop that is under way around the latest one, and how many batches it has handed out."""


class Feed:
    """One loader and what its iterator hands out: ``real`` batches, ``replay``, ``resident``, ``warm``, ``cold``."""

    around: tuple[Any, int] | None = None
    """As in ``Handed``, of a feed that has iterators to choose from."""
    trial: Any = None
    """A loop that may train or not, of whoever keeps account of loops."""
    without_gradients = False
    """Training reads it while gradients are off."""
    _at_step = (0.0, False)
    """Wait, and whether some samples were uncounted, at the end of the last step."""
    number = 0
    """Among the loaders of the script."""
    stamps = script.NoStamps()
    """Where its account keeper notes what a step waits for."""
    read_before_pass = 1
    """At most, batches that a training loop took before its first backward pass."""

    remade = False
    """Its loader was made again for another epoch."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.workers = 0
        self.depth = 0
        """Batches in flight when the queue is full."""
        self.mode = "real"
        self.ring = Ring()
        self.turn = 0
        """Batches handed out since the last loop over it began."""
        self.limit: int | None = None
        """How many there are in that epoch; ``None`` if unknown."""
        self.goes_on = False
        """Never end: the script's own epochs are too short to be measured in."""
        self.now = time.perf_counter
        """The clock of its account keeper."""
        self.account_keeper: object = None
        """Keeps account of the loops that read it; another object in a fork."""
        self.loops = 0
        """Loops that hold an iterator over it, frameworks' own around the script's included."""
        self.in_handles = False
        """Its loops tell when they end; else only the end of its data does."""
        self.stands_for: Feed | None = None
        """The training feed that this one's loader, made again for the next epoch, is another loader for."""
        self.since_step = 0
        self.beside_since_step = 0
        """Batches that no step trains on, for all that is known."""
        self.steps = 0
        """How many steps of the job it was read for."""
        self.per_step = 1
        self.reads_ahead = False
        """The loop fetches a batch before it trains on the last one, as frameworks do."""
        self.wait = 0.0
        self.took = 0.0
        """Seconds that the last batch took to come."""
        self.own = 0.0
        """Seconds that handing out batches took beside that: Stash's own work."""
        self.samples = 0
        """Trained on."""
        self._in_hand: list[int] = []
        """Samples of the batches handed out that no step has trained on yet."""
        self.uncounted = False
        """Among the batches handed out was one whose samples cannot be counted."""
        self.startup: float | None = None
        self.asked: float | None = None
        self.training = False
        self.first_at_pass = 0
        """How many backward passes there had been when the first batch of this epoch was handed out."""
        self._batches = self._steps_of_epoch = 0
        self.seen_length: int | None = None
        """Batches in an epoch that was read to its end."""

    def real(self) -> Any:
        """The next batch of the real pipeline; StopIteration at its end."""
        raise NotImplementedError

    def start_over(self) -> bool:
        """Begin the data over after its end; False if that cannot be done."""
        return False

    def drain(self) -> None:
        """Let nothing prefetched remain."""

    def begin_round(self) -> None:
        """From now on blocks read other samples than before; those of one round all read the same."""

    def prime(self, count: int, skipped: int = 0) -> None:
        """Ask for ``count`` batches of the round's samples, after the first ``skipped``."""

    def ask_for(self, count: int) -> None:
        """Ask for ``count`` more of the round's batches, after those that were asked for."""

    def end_workers(self) -> None:
        """Nothing it started is left."""

    @property
    def wait_of_a_step(self) -> float:
        """Seconds that a step of the script's own epochs waited for its batches, the start of workers left out."""
        return max(0.0, self.wait - (self.startup or 0.0)) / max(1, self.steps)

    @property
    def length(self) -> int | None:
        """Batches in an epoch; ``None`` if unknown."""
        return self.seen_length

    @property
    def measured(self) -> bool:
        """Whether what it hands out is a block's choice, and no longer the script's."""
        return self.mode != "real"

    def begin_epoch(self) -> None:
        """A loop over it begins."""
        self.turn, self.limit, self._steps_of_epoch = 0, self.length, 0

    def account(self) -> Handed:
        """How far it has come."""
        return Handed(
            self.turn, self.limit, self._steps_of_epoch, self.since_step, self.wait, self.uncounted, self.around
        )

    def restore(self, before: Handed, read: int) -> None:
        """Forget the ``read`` batches handed out since; blocks under way may ask for as many more."""
        self.turn, self.limit, self._steps_of_epoch = before.turn, before.limit, before.steps_of_epoch
        self.since_step, self.wait, self.uncounted = before.since_step, before.wait, before.uncounted
        del self._in_hand[max(0, len(self._in_hand) - read) :]

    def take_over(self, other: Feed) -> None:
        """What the other one has handed out counts as this one's."""
        self.samples, other.samples = self.samples + other.samples, 0
        self._in_hand, other._in_hand = self._in_hand + other._in_hand, []

    def read_on(self, other: Feed) -> None:
        """Read what the other one's loop is about to, as no block decides yet what that gets."""

    def skip_step(self) -> None:
        """What was handed out since the last step belongs to none."""
        wait, uncounted = self._at_step
        self._steps_of_epoch += -(-self.since_step // self.per_step)
        kept = replace(self.account(), since_step=0, wait=wait, uncounted=uncounted, around=None)
        self.restore(kept, self.since_step)

    @property
    def at_end(self) -> bool:
        """Whether the script's own epoch is over."""
        return self.limit is not None and self.turn >= self.limit and self.measured and not self.goes_on

    def release(self) -> None:
        """No loop will read on where the last one stopped."""

    def hold(self) -> None:
        """Blocks read from it from now on, whatever becomes of the script's own reference to it."""

    @property
    def like(self) -> tuple[object, ...]:
        """What a loader made again for another epoch has in common with this one."""
        return (self.kind,)

    def step_ended(self) -> None:
        """An optimizer stepped: learn how many batches a step usually takes."""
        if self.since_step:
            self.steps, self._batches = self.steps + 1, self._batches + self.since_step
            self.per_step = max(1, round(self._batches / self.steps))  # frameworks that read ahead take turns
            self._steps_of_epoch += 1
            if self.mode == "real":  # a block that begins in the middle of an epoch has turns of its own
                self.reads_ahead |= self.turn > self.per_step * self._steps_of_epoch
        ahead = int(self.reads_ahead and len(self._in_hand) > self.per_step)  # not at the last step of an epoch
        trained = self._in_hand[: len(self._in_hand) - ahead]
        self.samples += sum(trained)
        del self._in_hand[: len(trained)]
        self.since_step = self.beside_since_step = 0
        self._at_step = (self.wait, self.uncounted)

    def next(self) -> Any:
        """Serve the training loop one batch according to the mode."""
        began = self.now()
        if self.mode in ("replay", "resident"):
            batch = self.ring.next()
            self.stamps.enter(_FORWARD)
            self.took = self.now() - began
        else:
            batch = self._read(began)
        count = samples(batch)
        self._in_hand.append(count or 0)
        self.uncounted |= count is None
        self.turn += 1
        self.since_step += 1
        return batch

    def _read(self, began: float) -> Any:
        delayed = self.stamps.wait_begins(began)
        try:
            batch = self.endless() if self.measured or self.goes_on else self.real()
        except StopIteration:
            if not (self.measured or self.goes_on):
                self.seen_length = self.turn
            self.stamps.wait_ends(self.now(), delayed, self.number, _BETWEEN)
            raise
        ended = self.now()
        self.took = ended - began
        self.wait += self.took
        self.stamps.wait_ends(ended, delayed, self.number)
        if self.asked is not None:
            self.startup, self.asked = ended - self.asked, None
        if self.mode == "real":
            self.ring.offer(batch)
        return batch

    def endless(self) -> Any:
        """The next real batch, from the start again when the data end."""
        try:
            return self.real()
        except StopIteration:
            if not self.start_over():
                raise
            return self.real()

    def begin(self, mode: str, count: int, first: int = 0, device: Any = None) -> None:
        """Switch to ``mode``, for a block of ``count`` batches.

        ``warm`` and ``cold`` start with samples asked for, from batch ``first`` of the round on, none ready; replays
        with the batch kept at ``first``, handed out on ``device`` if any.
        """
        self.drain()
        self.mode, self.wait, self.samples, self.uncounted = mode, 0.0, 0, False
        self._at_step = (0.0, False)
        self._in_hand = self._in_hand[-1:] if self.reads_ahead else []
        if mode in ("warm", "cold"):
            self.ring.rest()
            self.prime(count, first)
        elif not self.ring.begin(count, first, device):
            script.note(
                "the script writes into its batches, and there is no room for copies of a whole block's: making them "
                "within steps is part of compute"
            )

    def refill(self, reads: range, replayed: range, device: Any = None) -> None:
        """Read these of the round's batches, untimed, and keep those to be ``replayed``, on ``device`` too if any."""
        self.drain()
        self.ring.rest()
        self.mode = "warm"
        self.prime(len(reads), reads.start)
        read = enumerate(self._ahead(len(reads)), reads.start)
        if not self.ring.refill((batch for position, batch in read if position in replayed), device):
            script.note(
                "a block's batches do not all fit into the memory for replays, which repeat its first ones: where "
                "batches differ, compute is that of those"
            )
        self.drain()

    def _ahead(self, count: int) -> Iterator[Any]:
        """``count`` batches of the real pipeline, or as many as there are."""
        for _ in range(count):
            try:
                batch = self.endless()
            except StopIteration:  # of an iterable that cannot be iterated twice
                return
            script.listener().beat()
            yield batch

    def consume(self, count: int) -> int:
        """Read ``count`` batches and drop them; the value counts their samples."""
        return sum(samples(batch) or 0 for batch in self._ahead(count))


class WatchedFeed(Feed):
    """The feed of any iterable handed to ``stash.loader``: it can be restarted, not steered."""

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
            return self.seen_length

    def real(self) -> Any:
        if self._iterator is None:
            self._iterator = iter(self._iterable)
        return recorded(own_tally(), self, time.perf_counter_ns(), next, self._iterator)

    def start_over(self) -> bool:
        if iter(self._iterable) is self._iterable:
            return False
        self._iterator = iter(self._iterable)
        return True

    def prime(self, count: int, skipped: int = 0) -> None:
        self.start_over()
        self.consume(skipped)


_watched: dict[int, WatchedFeed] = {}


def watched_feed(iterable: Any) -> WatchedFeed:
    """The one feed of an iterable that is no ``DataLoader``."""
    return _watched.setdefault(id(iterable), WatchedFeed(iterable))  # which holds the iterable: no id comes twice


class WatchedIterator:
    """An iterator over a feed, for loops over what is no ``DataLoader``."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def __iter__(self) -> WatchedIterator:
        return self

    def __next__(self) -> Any:
        return script.listener().loops.next_batch(self._feed)


class Handle:
    """Stands for an iterator in one loop, and tells when it ends. The iterator itself asks the feed for batches."""

    def __init__(self, feed: Feed, iterator: Iterator[Any], owner: Any = None) -> None:
        self.feed, self._iterator = feed, iterator
        self._owner = owner  # a loader that exists only in a for statement must live as long as its loop
        self.taken = 0
        self.trains = False
        """It took a batch while gradients were on."""
        self._open = True
        feed.loops += 1
        feed.in_handles = True

    def __iter__(self) -> Handle:
        return self

    def __next__(self) -> Any:
        self.taken += 1
        try:
            listener = script.bus.listener
            if listener.listens and listener.loops.should_stop(self):
                raise StopIteration
            return next(self._iterator)
        except StopIteration:
            self._close()
            raise

    def __len__(self) -> int:
        return len(self._iterator)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or self.__dict__.get("_iterator") is None:
            raise AttributeError(name)
        return getattr(self._iterator, name)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self._close()

    def _close(self) -> None:
        if self._open:
            self._open = False
            self.feed.loops -= 1
            script.listener().loops.closed(self)
