"""The script's loops over its loaders: which of them train, where an epoch ends, and whether training goes on then.

Epochs stay the script's own. Between two of them nothing is measured: validation gets one batch of each loader, and
the clock of the block under way stands still until the training loop asks for its next batch. If it never does,
training is over, and ``over`` is called. A loop over a training loader need not train: batches read while gradients
are off, or by a loop that no backward pass follows, are no step's. Which batch a loader hands out is its feed's
choice.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stash.measure.agent import script
from stash.measure.agent.data.feeds import Feed, Handed, Handle
from stash.measure.agent.runner.rank import OwnRank
from stash.measure.agent.runner.stamps import BlockClock
from stash.measure.agent.script import ThreadEvent

PATIENCE = 20.0
"""Seconds without any sign of training after an epoch: it is over."""
PATIENCE_AFTER_SAVING = 5.0
_SKIPPED = 2
"""Batches that a training loop may read before its first backward pass beyond what it was seen to read."""


@dataclass
class Trial:
    """A loop over a training loader before its first backward pass; what it read is undone if there is none."""

    began: float
    between: bool
    """Whether an epoch was over when it began."""
    passes: int
    before: Handed
    """Of the feed."""
    read: int = 0
    ended: bool = False
    """It read its loader to the end."""
    dismissed: bool = False
    """It read too much to be training; it gets no more."""


class Loops(script.LoopListener):
    """The loops of one process; ``over`` is called, from a timer's thread, when nothing came after an epoch."""

    def __init__(self, rank: OwnRank, over: Callable[[], None]) -> None:
        self.between = False
        """The training loop ended: an epoch is over, or training is; what the script does next will tell."""
        self.clock: BlockClock | None = None
        """Of the block under way."""
        self._rank, self._over = rank, over
        self._read: list[weakref.ref[Feed]] = []
        """The feeds that loops have read."""
        self._read_last: list[Feed] = []
        """In the last step."""
        self.surprised = self._new = False
        """A loader was read for the last step that the one before did without: validation's, perhaps. Where that goes
        on step for step, it is how the job trains."""
        self._steps = 0
        self._passes = 0
        """Backward passes up to the last step."""
        self._has_passes = True
        """Every step so far had one: gradients of some scripts come from elsewhere."""
        self._read_beside = False
        """Batches were read since the last step that no step trains on."""
        self._loaders_are_remade = False
        self._read_elsewhere = False
        """A thread that does not train has read a loader."""
        self._timer: threading.Timer | None = None

    def training(self) -> list[Feed]:
        """The feeds that the job trains from, as far as its steps have shown; they are held from now on."""
        if self._read_elsewhere:
            self._rank.note(
                "a thread of the script's own reads its loader ahead of training: what steps wait for that thread is "
                "seen as time before their forward passes, and not apart as prep and fetch"
            )
        found = [feed for feed in self._feeds() if feed.training and self._still_reads(feed)]
        for feed in found:
            feed.hold()
        return [feed for feed in found if len(feed.ring)]

    def _feeds(self) -> list[Feed]:
        """Those that are still there."""
        return [feed for reference in self._read if (feed := reference()) is not None]

    def _still_reads(self, feed: Feed) -> bool:
        """Frameworks may hold a validation's iterator, and read it between epochs only."""
        return feed in self._read_last or (feed.loops > 0 and 2 * feed.steps > self._steps)

    def begin_block(self) -> BlockClock:
        """The clock of a block that begins now; a queue whose events are read stays full."""
        clock = self._rank.clock
        self.clock = BlockClock(clock.now() if self._rank.stamps.follows_device else clock.settled())
        if self.between:  # the step just ended was the last of an epoch, of a framework that reads ahead
            self.clock.pause(self.clock.started)
        return self.clock

    def iterator_asked(self, feed: Feed) -> None:
        event = ThreadEvent.EVALUATION_ASKED if self._beside(feed) else ThreadEvent.ITERATOR_ASKED
        self._rank.ledger.tell(event, feed)

    def opened(self, handle: Handle) -> None:
        """A loop took an iterator: the next epoch begins, or something other than training."""
        if self._in_another_thread():
            return
        feed, beside = handle.feed, self._beside(handle.feed)
        may_replace = self.between and self._loaders_are_remade and not (feed.training or beside)
        if may_replace and any(feed.like == known.like for known in self._rank.feeds):
            self._let_stand(feed)
        feed = feed.stands_for or feed
        before = feed.account()
        if not beside or feed.loops <= 1:  # a loop within the training loop leaves that one's epoch alone
            feed.begin_epoch()
        if beside or not feed.training:
            self._pause()
            return
        if self._has_passes and feed.trial is None:
            feed.trial = Trial(self._rank.clock.now(), self.between, script.passes(), before)
        self._goes_on(begins=True)

    def _beside(self, feed: Feed) -> bool:
        """Whether what is read now is no step's: gradients are off, and this loader's batches do not come so."""
        return not sys.modules["torch"].is_grad_enabled() and not (feed.stands_for or feed).without_gradients

    def should_stop(self, handle: Handle) -> bool:
        """Whether a loop gets no more: one that does not train gets a single batch."""
        if not self._rank.feeds or self._in_another_thread():
            return False
        feed = handle.feed.stands_for or handle.feed
        if self._rank.ledger.may_evaluate:
            return False
        if not feed.training:
            return feed.turn > 0 and not self._trains_after_all(feed)
        if feed.trial is not None and feed.trial.dismissed:
            return True
        if self._beside(feed):
            return handle.taken > 1 and not handle.trains
        handle.trains = True
        return False

    def next_batch(self, feed: Feed) -> Any:
        """The next batch; a training loader's as the block asks, up to the end of the script's own epoch."""
        if self._in_another_thread():
            self._read_elsewhere = True
            return feed.real()
        ledger = self._rank.ledger
        ledger.tell(ThreadEvent.EVALUATION_ASKED if self._beside(feed) else ThreadEvent.BATCH_ASKED, feed)
        try:
            batch = self._next_batch(feed)
        except StopIteration:
            ledger.tell(ThreadEvent.LOOP_ENDED, feed)
            raise
        ledger.tell(ThreadEvent.BATCH_GIVEN, feed)
        return batch

    def _next_batch(self, feed: Feed) -> Any:
        since, beside = self._rank.clock.now(), self._beside(feed)
        if feed.turn == 0:
            feed.first_at_pass = script.passes()
        elif not (feed.training or beside) and self._trains_after_all(feed):
            self._loaders_are_remade = True
            self._let_stand(feed)
        feed = feed.stands_for or feed
        if feed.account_keeper is not self:
            feed.account_keeper, feed.now, feed.stamps = self, self._rank.clock.now, self._rank.stamps
            self._read = [reference for reference in self._read if reference() is not None]
            feed.number = len(self._read)
            self._read.append(weakref.ref(feed))
        if beside or (feed.trial is not None and not self._may_train(feed, feed.trial)):
            return self._batch_beside(feed)
        if feed.training:
            self._goes_on(begins=feed.turn == 0)
        try:
            if feed.at_end:
                raise StopIteration
            batch = feed.next()
        except StopIteration:
            if feed.trial is not None:
                feed.trial.ended = True
            if not feed.in_handles:
                self._ended(feed)
            raise
        if feed.training:
            self._resume()
        feed.own += feed.now() - since - feed.took
        return batch

    def _in_another_thread(self) -> bool:
        """Whether a thread that does not train asks: what it fetches for later, no step can be given in its place."""
        return not self._rank.stamps.of_this_thread

    def _batch_beside(self, feed: Feed) -> Any:
        """A batch that no step trains on; while blocks are measured, a copy of one that they leave alone."""
        self._read_beside = True
        feed.beside_since_step += 1
        if feed in self._rank.feeds:
            self._pause()
            if not self._rank.ledger.may_evaluate:
                return feed.ring.copy()
        batch = feed.real()
        feed.turn += not feed.training
        return batch

    def _may_train(self, feed: Feed, trial: Trial) -> bool:
        """Whether a loop that asks for another batch may be training, for all that is known."""
        if script.passes() > trial.passes:
            self._settle(feed, trains=True)
        elif self._rank.feeds and trial.read >= feed.read_before_pass + _SKIPPED:
            self._dismiss(feed, trial)
            return False
        trial.read += 1
        return True

    def _settle(self, feed: Feed, trains: bool) -> None:
        """It is known now whether the feed's latest loop trains."""
        trial, feed.trial = feed.trial, None
        if trial is None:
            return
        if trains:
            feed.read_before_pass = max(feed.read_before_pass, trial.read)
        elif not trial.dismissed:
            self._dismiss(feed, trial)

    def _dismiss(self, feed: Feed, trial: Trial) -> None:
        """A loop did not train: what it read counts for nothing, and the block gets other batches in its place."""
        trial.dismissed = self._read_beside = True
        feed.restore(trial.before, trial.read)
        if self.clock is not None:
            self.clock.pause(trial.began)
        if trial.between:
            self.between = True
            self._wait(PATIENCE)

    def closed(self, handle: Handle) -> None:
        """A loop's iterator ended, or the loop dropped it; frameworks' own loops may go on around it."""
        if self._in_another_thread():
            return
        self._rank.ledger.tell(ThreadEvent.LOOP_ENDED, handle.feed)
        feed = handle.feed.stands_for or handle.feed
        trial = feed.trial
        if trial is not None and script.passes() > trial.passes:
            self._settle(feed, trains=True)
        elif trial is not None and (trial.ended or trial.dismissed or trial.read > feed.per_step):
            self._settle(feed, trains=False)
            self._left_beside()
            return
        if feed.training and self._beside(feed) and not handle.trains:
            self._left_beside()
            return
        a_look = feed.training and handle.taken <= feed.per_step  # next(iter(loader)), in every step perhaps
        if not handle.feed.loops and not a_look:
            self._ended(feed)

    def stepped(self) -> None:
        """A step of the job ended: loaders still open that were read since the last one train it.

        What follows may take long, of a rank that sits a block out; after ``step_begins`` time counts again.
        """
        self.stop_waiting()
        passes, feeds = script.passes(), self._feeds()
        self._steps += 1
        self._has_passes &= passes > self._passes
        self._passes = passes
        if self._rank.feeds:  # which loaders train is settled
            for feed in feeds:
                if feed.trial is not None:
                    self._settle(feed, trains=True)
                feed.step_ended()
            self._read_beside = False
            return
        for feed in feeds:
            self._settle(feed, trains=True)
        if not any(feed.since_step for feed in feeds):  # this job reads what it trains on without gradients
            for feed in feeds:
                feed.without_gradients |= feed.loops > 0 and feed.beside_since_step > 0
        before, self._read_last = self._read_last, [feed for feed in feeds if feed.since_step]
        new = self._read_last != before and any(feed not in before for feed in self._read_last)
        read_before = not self._read_last and any(feed.training for feed in feeds)  # of a loop that reads ahead
        self.surprised, self._new = (new and not self._new) or self._read_beside or read_before, new
        self._read_beside = False
        for feed in feeds:
            is_open = feed.loops > 0 or not feed.in_handles
            if feed.since_step and is_open:
                feed.training, feed.goes_on = True, self._rank.orders.endless
            feed.step_ended()

    def skipped_steps(self) -> None:
        """What trained since the last step belongs to none: another optimizer's steps are the job's from now on."""
        self._read_beside = True
        for feed in self._feeds():
            feed.skip_step()
        if self.clock is not None:
            self.clock.skip(self._rank.clock.settled())

    def step_begins(self) -> None:
        """The script goes on after a step; where devices run ahead, what Stash did meanwhile has cost it nothing."""
        if self.between:
            self._wait(PATIENCE)
        if self.clock is not None and not self._rank.clock.runs_ahead:
            self.clock.step_begins(self._rank.clock.now())

    def acted(self, saved: bool = False) -> None:
        """The script does something else than train; after it ``saved``, not much more is to come."""
        if self.between:
            self._wait(PATIENCE_AFTER_SAVING if saved else PATIENCE)

    def leave_alone(self) -> None:
        """Steps follow whose loops tell nothing: if those do not end in a while, training is over."""
        self.between = True
        self._wait(PATIENCE)

    def stop_waiting(self) -> None:
        """Wait no more for the next epoch."""
        if self._timer is not None:
            self._timer.cancel()

    def _ended(self, feed: Feed) -> None:
        if feed.training:
            self._pause()
            self.between = True
            self._wait(PATIENCE)
        else:
            feed.release()
            self._left_beside()

    def _left_beside(self) -> None:
        """A loop that did not train is over; within an epoch the training loop goes on."""
        if not self.between:
            self._resume()

    def _goes_on(self, begins: bool) -> None:
        """``begins``: with its first batch, for which the wait is no step's where somebody else accounts for it."""
        if self.between:
            self.between = False
            self.stop_waiting()
        if not begins or (self._rank.orders.trial is None and not self._rank.ledger.sees_epochs):
            self._resume()

    def _pause(self) -> None:
        if self.clock is not None:
            self.clock.pause(self._rank.clock.settled())

    def _resume(self) -> None:
        if self.clock is not None and self.clock.paused:
            self.clock.resume(self._rank.clock.settled())

    def _wait(self, seconds: float) -> None:
        self.stop_waiting()
        self._timer = threading.Timer(seconds, lambda: self._over() if self.between else None)
        self._timer.daemon = True
        self._timer.start()

    def _trains_after_all(self, feed: Feed) -> bool:
        """Whether a loader that looked like a validation's is read while the job trains."""
        may = bool(self._rank.feeds) and not (feed.training or feed.stands_for)
        return may and feed.first_at_pass < script.passes()

    def _let_stand(self, feed: Feed) -> None:
        """From now on a loader that was made again for an epoch reads what blocks ask of the one that it replaces."""
        free = [known for known in self._rank.feeds if not known.loops and known is not feed]
        if free:
            feed.stands_for = next((known for known in free if known.like == feed.like), free[0])
            feed.stands_for.remade = True
            feed.stands_for.begin_epoch()
            feed.stands_for.turn = feed.turn
            feed.stands_for.take_over(feed)
            if not feed.stands_for.measured:
                feed.stands_for.read_on(feed)
