"""What a training loop iterates over: its loader's batches passed on, replayed, or read again from drained queues.

Epochs stay as long as the script's own: a feed knows how many batches it has handed out since a loop began, and how
many there are. Which loader trains, and what a loop gets, is for ``runner/loops`` to say.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from stash.measure.agent import script
from stash.measure.agent.data.batches import count_samples
from stash.measure.agent.data.reads import record_reads
from stash.measure.agent.data.ring import Ring
from stash.measure.agent.data.tally import own_tally
from stash.measure.agent.thread_events import ThreadEvent

_REPLAYS = ("replay", "resident")


class FeedProgress(NamedTuple):
    """How far a feed's loops and the step under way have come; each batch and each step make another one."""

    turn: int = 0
    """Batches since the last loop over it began."""
    limit: int | None = None
    """How many there are in that epoch; ``None`` if unknown."""
    steps_of_epoch: int = 0
    since_step: int = 0
    """Batches since the last step."""
    wait: float = 0.0
    """Seconds that batches were waited for."""
    uncounted: bool = False
    """Among the batches was one whose samples cannot be counted."""
    at_step: tuple[float, bool] = (0.0, False)
    """``wait`` and ``uncounted`` at the end of the last step."""
    around: Any = None
    """What stands for the iterator of a loop that is under way around the latest one."""

    def begin_epoch(self, length: int | None) -> FeedProgress:
        """A loop begins."""
        return self._replace(turn=0, limit=length, steps_of_epoch=0)

    def hand_out(self, is_counted: bool, waited: float) -> FeedProgress:
        """A batch is handed out, for which a loop waited so many seconds."""
        turn, limit, steps, since_step, wait, uncounted, *rest = self
        uncounted = uncounted or not is_counted
        return FeedProgress(turn + 1, limit, steps, since_step + 1, wait + waited, uncounted, *rest)

    def end_step(self) -> FeedProgress:
        """A step ended."""
        turn, limit, steps, since_step, wait, uncounted, _, around = self
        steps += since_step > 0
        return FeedProgress(turn, limit, steps, 0, wait, uncounted, (wait, uncounted), around)

    def skip_step(self, per_step: int) -> FeedProgress:
        """What was handed out since the last step belongs to none."""
        steps = self.steps_of_epoch - (-self.since_step // per_step)
        return FeedProgress(self.turn, self.limit, steps, 0, *self.at_step, self.at_step)


class ReadingPattern(NamedTuple):
    """What steps and epochs have shown of how a job reads a loader."""

    steps: int = 0
    """Steps of the job that it was read for."""
    batches: int = 0
    """Of those steps."""
    reads_ahead: bool = False
    """The loop fetches a batch before it trains on the last one, as frameworks do."""
    length: int | None = None
    """Batches in an epoch that was read to its end."""
    asked: float | None = None
    """When an iterator was asked for whose first batch has not come."""
    startup: float | None = None
    """Seconds that an iterator and its first batch took to come."""
    is_remade: bool = False
    """Its loader was made again for another epoch."""
    waited: float = 0.0
    """Seconds that batches of the script's own epochs were waited for, until the last block."""

    @property
    def per_step(self) -> int:
        """Batches that a step usually takes; frameworks that read ahead take turns."""
        return max(1, round(self.batches / self.steps)) if self.steps else 1


class FeedAccount(NamedTuple):
    """What who keeps account of a feed's loops gives to it."""

    number: int | None = None
    """Among the loaders of the script; ``None``: nobody keeps account."""
    now: Callable[[], float] = time.perf_counter
    tell: Callable[[ThreadEvent, float, int | None], None] = lambda event, now, loader: None
    """Whom to tell of reads, and when they were."""
    goes_on: bool = False
    """Never end: the script's own epochs are too short to be measured in."""


@dataclass(frozen=True)
class OpenLoops:
    """Loops that hold an iterator over a feed, frameworks' own around the script's included."""

    count: int = 0
    tell_their_end: bool = False
    """Else only the end of the data does."""


class Feed:
    """One loader and what its iterator hands out: ``real`` batches, ``replay``, ``resident``, ``warm``, ``cold``."""

    workers = 0
    depth = 0
    """Batches in flight when the queue is full."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.mode = "real"
        self.ring = Ring()
        self.handed = FeedProgress()
        self.learned = ReadingPattern()
        self.account = FeedAccount()
        self.open_loops = OpenLoops()
        self.course: Any = None
        """What who decides what its loops are for remembers of them."""
        self._in_hand: list[int] = []
        """Samples of the batches handed out that no step has trained on yet."""
        self._requested: float | None = None
        """When a loop asked for the batch that is to come."""

    def real(self) -> Any:
        """The next batch of the real pipeline; StopIteration at its end."""
        raise NotImplementedError

    def start_over(self) -> bool:
        """Begin the data over after its end; False if that cannot be done."""
        return False

    def drain(self) -> None:
        """Let nothing prefetched remain."""

    def begin_round(self, passed_over: int = 0) -> None:
        """From now on blocks read other samples than before; those of one round all read the same.

        So many batches of the data are ``passed_over``, where that takes no reading.
        """

    def prime(self, count: int, skipped: int = 0) -> None:
        """Ask for ``count`` batches of the round's samples, after the first ``skipped``."""

    def ask_for(self, count: int) -> None:
        """Ask for ``count`` more of the round's batches, after those that were asked for."""

    def end_workers(self) -> None:
        """Nothing it started is left."""

    @property
    def wait_of_a_step(self) -> float:
        """Seconds that a step of the script's own epochs waited for its batches, the start of workers left out."""
        learned = self.learned
        waited = learned.waited + (0.0 if self.is_measured else self.handed.wait)
        return max(0.0, waited - (learned.startup or 0.0)) / max(1, learned.steps)

    @property
    def per_step(self) -> int:
        return self.learned.per_step

    @property
    def length(self) -> int | None:
        """Batches in an epoch; ``None`` if unknown."""
        return self.learned.length

    @property
    def loops(self) -> int:
        """Loops that are known to hold an iterator over it."""
        return self.open_loops.count

    @property
    def is_measured(self) -> bool:
        """Whether what it hands out is a block's choice, and no longer the script's."""
        return self.mode != "real"

    def open_account(self, account: FeedAccount) -> None:
        """Somebody keeps account of its loops from now on."""
        self.account = account

    def remember_course(self, course: Any) -> None:
        self.course = course

    def note_request(self) -> None:
        """A loop asks for a batch: what PyTorch does before it reads one belongs to that as well."""
        self._requested = self.account.now()

    def take_request(self, now: float) -> float:
        """When the batch was asked for that is read ``now``."""
        requested, self._requested = self._requested, None
        return now if requested is None else requested

    def ask_iterator(self) -> None:
        """A loop asks for an iterator."""
        self.learned = self.learned._replace(asked=None if self.is_measured else self.account.now())

    def open_loop(self) -> None:
        """A loop took an iterator, and will tell when it ends."""
        self.open_loops = OpenLoops(self.loops + 1, tell_their_end=True)

    def close_loop(self) -> None:
        """It ended."""
        self.open_loops = OpenLoops(self.loops - 1, tell_their_end=True)

    def begin_epoch(self) -> None:
        """A loop over it begins."""
        self.handed = self.handed.begin_epoch(self.length)

    def pass_by(self) -> None:
        """A batch is handed out that no step trains on."""
        self.handed = self.handed._replace(turn=self.handed.turn + 1)

    def go_round(self, iterator: Any) -> None:
        """A loop over that ``iterator`` is under way around the latest one; ``None``: there is none."""
        self.handed = self.handed._replace(around=iterator)

    def restore(self, before: FeedProgress, read: int) -> None:
        """Forget the ``read`` batches handed out since; blocks under way may ask for as many more."""
        self.handed = before._replace(around=self.handed.around)
        del self._in_hand[max(0, len(self._in_hand) - read) :]

    def take_over(self, other: Feed) -> None:
        """Its loader was made again, as the other one's: what that has handed out counts as this one's."""
        self.begin_epoch()
        self.handed = self.handed._replace(turn=other.handed.turn)
        self.learned = self.learned._replace(is_remade=True)
        self._in_hand.extend(other._in_hand)
        other._in_hand.clear()

    def read_on(self, other: Feed) -> None:
        """Read what the other one's loop is about to, as no block decides yet what that gets."""

    def skip_step(self) -> None:
        """What was handed out since the last step belongs to none."""
        self.restore(self.handed.skip_step(self.per_step), self.handed.since_step)

    @property
    def is_at_end(self) -> bool:
        """Whether the script's own epoch is over."""
        handed = self.handed
        has_ended = handed.limit is not None and handed.turn >= handed.limit
        return has_ended and self.is_measured and not self.account.goes_on

    def release(self) -> None:
        """No loop will read on where the last one stopped."""

    def hold(self) -> None:
        """Blocks read from it from now on, whatever becomes of the script's own reference to it."""

    @property
    def signature(self) -> tuple[object, ...]:
        """What a loader made again for another epoch has in common with this one."""
        return (self.kind,)

    def step_ended(self) -> int:
        """An optimizer stepped: learn how many batches a step usually takes.

        The value is the samples that it trained on.
        """
        handed, learned, in_hand = self.handed, self.learned, self._in_hand
        if handed.since_step:
            learned = ReadingPattern(
                learned.steps + 1, learned.batches + handed.since_step, *learned[2:]
            )
            # a block that begins in the middle of an epoch has turns of its own
            if self.mode == "real" and not learned.reads_ahead:
                ahead = handed.turn > learned.per_step * (handed.steps_of_epoch + 1)
                learned = learned._replace(reads_ahead=True) if ahead else learned
            self.learned = learned
        self.handed = handed.end_step()
        # not at an epoch's last step
        is_ahead = learned.reads_ahead and len(in_hand) > learned.per_step
        trained = in_hand[:-1] if is_ahead else in_hand.copy()
        del in_hand[: len(trained)]
        return sum(trained)

    def take_next(self) -> tuple[Any, float]:
        """Serve the training loop one batch according to the mode; and the seconds that it took to come."""
        number, now, tell, goes_on = self.account
        replays, ends = self.mode in _REPLAYS, self.mode == "real" and not goes_on
        if not replays:
            tell(ThreadEvent.READ_BEGINS, now(), number)
        began = now()
        try:
            if replays:
                batch = self.ring.next_batch()
            else:
                batch = self.real() if ends else self.read_endlessly()
        except StopIteration:
            if ends:
                self.learned = self.learned._replace(length=self.handed.turn)
            tell(ThreadEvent.READ_FAILED, now(), number)
            raise
        ended = now()
        tell(ThreadEvent.REPLAYED if replays else ThreadEvent.READ_ENDED, ended, number)
        if self.learned.asked is not None and not replays:
            startup = ended - self.learned.asked
            self.learned = self.learned._replace(startup=startup, asked=None)
        if self.mode == "real":
            self.ring.offer(batch)
        took, count = ended - began, count_samples(batch)
        self._in_hand.append(count or 0)
        self.handed = self.handed.hand_out(count is not None, 0.0 if replays else took)
        return batch, took

    def read_endlessly(self) -> Any:
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
        if not self.is_measured:
            waited = self.learned.waited + self.handed.wait
            self.learned = self.learned._replace(waited=waited)
        self.mode = mode
        self.handed = self.handed._replace(wait=0.0, uncounted=False, at_step=(0.0, False))
        del self._in_hand[: -1 if self.learned.reads_ahead else None]
        if mode in ("warm", "cold"):
            self.ring.end_block()
            self.prime(count, first)
        elif not self.ring.begin(count, first, device):
            script.note(
                "the script writes into its batches, and there is no room for copies of a whole block's: making them "
                "within steps is part of compute"
            )

    def refill(self, reads: range, replayed: range, device: Any = None) -> None:
        """Read these of the round's batches, untimed, and keep those to be ``replayed``, on ``device`` too if any."""
        self.drain()
        self.ring.end_block()
        self.mode = "warm"
        self.prime(len(reads), reads.start)
        read = enumerate(self._iter_batches(len(reads)), reads.start)
        if not self.ring.refill(
            (batch for position, batch in read if position in replayed), device
        ):
            script.note(
                "a block's batches do not all fit into the memory for replays, which repeat its first ones: where "
                "batches differ, compute is that of those"
            )
        self.drain()

    def _iter_batches(self, count: int) -> Iterator[Any]:
        """``count`` batches of the real pipeline, or as many as there are."""
        with contextlib.suppress(StopIteration):  # of an iterable that cannot be iterated twice
            for _ in range(count):
                batch = self.read_endlessly()
                script.listener().beat()
                yield batch

    def consume(self, count: int) -> int:
        """Read ``count`` batches and drop them; the value counts their samples."""
        return sum(count_samples(batch) or 0 for batch in self._iter_batches(count))


class WatchedFeed(Feed):
    """The feed of any iterable handed to ``stash.loader``: it can be restarted, not steered."""

    def __init__(self, iterable: Any) -> None:
        super().__init__("watched")
        self._iterable = iterable
        self._iterator: Any = None

    def begin_epoch(self) -> None:
        super().begin_epoch()
        if not self.is_measured:
            self._iterator = iter(self._iterable)

    @property
    def length(self) -> int | None:
        try:
            return len(self._iterable)
        except TypeError:
            return self.learned.length

    def real(self) -> Any:
        if self._iterator is None:
            self._iterator = iter(self._iterable)
        own_tally()
        return record_reads(self, next, self._iterator)

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
    # which holds the iterable: no id comes twice
    return _watched.setdefault(id(iterable), WatchedFeed(iterable))


def iterate_feed(feed: Feed) -> Iterator[Any]:
    """Of loops over what is no ``DataLoader``; a generator could not be read by several threads."""
    return map(lambda _: script.listener().loops.next_batch(feed), itertools.repeat(0))  # noqa: C417


class Handle:
    """Stands for an iterator in one loop, and tells when it ends. The iterator itself asks the feed for batches."""

    def __init__(self, feed: Feed, iterator: Iterator[Any], owner: Any = None) -> None:
        self.feed, self._iterator = feed, iterator
        self._owner = (
            owner  # a loader that exists only in a for statement must live as long as its loop
        )
        self.taken = 0
        self.trains = False
        self._open = True
        feed.open_loop()

    def note_training(self) -> None:
        """It took a batch while gradients were on."""
        self.trains = True

    def __iter__(self) -> Handle:
        return self

    def __next__(self) -> Any:
        self.taken += 1
        self.feed.note_request()
        try:
            # what has trained goes on
            if not self.trains:
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
            self.feed.close_loop()
            script.listener().loops.closed(self)
