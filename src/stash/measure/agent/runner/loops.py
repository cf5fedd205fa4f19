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
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from stash.measure.agent import script
from stash.measure.agent.data.feeds import Feed, FeedAccount, FeedProgress, Handle
from stash.measure.agent.runner.loop_table import (
    LoopAction,
    LoopEvent,
    LoopOnTrial,
    LoopUse,
    handle_event,
)
from stash.measure.agent.runner.rank import OwnRank
from stash.measure.agent.runner.stamps import BlockClock
from stash.measure.agent.thread_events import ThreadEvent

PATIENCE = 20.0
"""Seconds without any sign of training after an epoch: it is over."""
PATIENCE_AFTER_SAVING = 5.0
_SKIPPED = 2
"""Batches that a training loop may read before its first backward pass beyond what it was seen to read."""


class Before(NamedTuple):
    """What a loop on trial goes back to."""

    began: float
    is_between: bool
    """Whether an epoch was over."""
    handed: FeedProgress
    """Of the feed."""


@dataclass(frozen=True)
class LoaderCourse:
    """How far a loader and its latest loop have come."""

    use: LoopUse = LoopUse.OTHER
    trial: LoopOnTrial | None = None
    first_at_pass: int = 0
    """Backward passes when the first batch of this epoch was handed out."""
    read_before_pass: int = 1
    """At most, batches that a training loop took before its first backward pass."""
    without_gradients: bool = False
    """Training reads it while gradients are off."""
    is_beside: bool = False
    """A batch since the last step was one that no step trains on, for all that is known."""
    stands_for: Feed | None = None
    """The training feed that this one's loader, made again for the next epoch, is another loader for."""

    @property
    def trains(self) -> bool:
        return self.use is not LoopUse.OTHER


class StepsSeen(NamedTuple):
    """What the job's steps so far have shown."""

    steps: int = 0
    passes: int = 0
    """Backward passes up to the last step."""
    all_have_passes: bool = True
    """Every step so far had one: gradients of some scripts come from elsewhere."""
    read_last: tuple[Feed, ...] = ()
    """In the last step."""
    is_new: bool = False
    """A loader was read for the last step that the one before did without."""
    surprised: bool = False
    """That may have been a validation's. Where it goes on step for step, it is how the job trains."""
    read_beside: bool = False
    """Batches were read since the last step that no step trains on."""
    read_elsewhere: bool = False
    """A thread that does not train has read a loader."""
    loaders_are_remade: bool = False

    def end_step(self, passes: int) -> StepsSeen:
        """A step ended after so many backward passes."""
        steps, before, have_passes, read_last, is_new, surprised, _, *rest = self
        have_passes = have_passes and passes > before
        return StepsSeen(steps + 1, passes, have_passes, read_last, is_new, surprised, False, *rest)

    def learn(self, read: tuple[Feed, ...], some_train: bool, read_beside: bool) -> StepsSeen:
        """It read these loaders; whether some have been seen to train."""
        is_new = any(feed not in self.read_last for feed in read)
        read_before = not read and some_train  # of a loop that reads ahead
        surprised = (is_new and not self.is_new) or read_beside or read_before
        return self._replace(read_last=read, is_new=is_new, surprised=surprised)


class EpochGap:
    """The time between two epochs, which ends with the next one, or else with training: then ``over`` is called."""

    def __init__(self, over: Callable[[], None]) -> None:
        self.is_open = False
        self._over = over
        self._timer: threading.Timer | None = None

    def open_gap(self, seconds: float) -> None:
        """Wait so long, from a timer's thread, for a sign of training."""
        self.is_open = True
        self.stop_waiting()
        self._timer = threading.Timer(seconds, lambda: self._over() if self.is_open else None)
        self._timer.daemon = True
        self._timer.start()

    def close(self) -> None:
        self.is_open = False
        self.stop_waiting()

    def stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Loops(script.LoopListener):
    """The loops of one process; ``over`` is called, from a timer's thread, when nothing came after an epoch."""

    def __init__(self, rank: OwnRank, over: Callable[[], None]) -> None:
        self.clock: BlockClock | None = None
        """Of the block under way."""
        self.samples = 0
        """That steps so far have trained on."""
        self._rank = rank
        self._gap = EpochGap(over)
        self._read: list[weakref.ref[Feed]] = []
        """The feeds that loops have read."""
        self._seen = StepsSeen()
        self._has_gradients = sys.modules["torch"].is_grad_enabled

    @property
    def is_between_epochs(self) -> bool:
        """The training loop ended: an epoch is over, or training is; what the script does next will tell."""
        return self._gap.is_open

    @property
    def is_surprised(self) -> bool:
        """The last step read what the ones before did not."""
        return self._seen.surprised

    def find_training_feeds(self) -> list[Feed]:
        """The feeds that the job trains from, as far as its steps have shown; they are held from now on."""
        if self._seen.read_elsewhere:
            self._rank.note(
                "a thread of the script's own reads its loader ahead of training: what steps wait for that thread is "
                "seen as time before their forward passes, and not apart as prep and fetch"
            )
        found = [
            feed for feed in self._list_read() if _course(feed).trains and self._still_reads(feed)
        ]
        for feed in found:
            feed.hold()
        return [feed for feed in found if len(feed.ring)]

    def _still_reads(self, feed: Feed) -> bool:
        """Frameworks may hold a validation's iterator, and read it between epochs only."""
        return feed in self._seen.read_last or (
            feed.loops > 0 and 2 * feed.learned.steps > self._seen.steps
        )

    def _list_read(self) -> list[Feed]:
        """The feeds that loops have read and whose loaders are still there."""
        return [feed for there in self._read if (feed := there()) is not None]

    def begin_block(self) -> BlockClock:
        """The clock of a block that begins now; a queue whose events are read stays full."""
        clock = self._rank.clock
        self.clock = BlockClock(
            clock.now() if self._rank.stamps.follows_device else clock.synchronize()
        )
        if (
            self.is_between_epochs
        ):  # the step just ended was the last of an epoch, of a framework that reads ahead
            self.clock.pause(self.clock.started)
        return self.clock

    def end_block(self) -> None:
        """No block is under way."""
        self.clock = None

    def iterator_asked(self, feed: Feed) -> None:
        event = ThreadEvent.EVALUATION_ASKED if self.is_beside(feed) else ThreadEvent.ITERATOR_ASKED
        self._rank.tell(event, feed)

    def is_beside(self, feed: Feed) -> bool:
        return not (self._has_gradients() or _course(_replaced_feed(feed)).without_gradients)

    def opened(self, handle: Handle) -> None:
        """A loop took an iterator: the next epoch begins, or something other than training."""
        if not self._rank.stamps.is_this_thread:
            return
        since = self._rank.clock.now()
        feed, beside = handle.feed, self.is_beside(handle.feed)
        may_replace = (
            self.is_between_epochs
            and self._seen.loaders_are_remade
            and not (_course(feed).trains or beside)
        )
        if may_replace and any(feed.signature == known.signature for known in self._rank.feeds):
            self._let_stand(feed)
        feed = _replaced_feed(feed)
        before = Before(self._rank.clock.now(), self.is_between_epochs, feed.handed)
        if (
            not beside or feed.loops <= 1
        ):  # a loop within the training loop leaves that one's epoch alone
            feed.begin_epoch()
        judged = LoopEvent.OPENED if self._seen.all_have_passes else LoopEvent.OPENED_UNJUDGED
        self._handle(feed, LoopEvent.OPENED_BESIDE if beside else judged, before)
        if not self._rank.clock.runs_ahead:  # else it may have waited for what devices had to do
            self._rank.work_since(since)

    def should_stop(self, handle: Handle) -> bool:
        """Whether a loop gets no more: one that does not train gets a single batch."""
        rank = self._rank
        if not rank.feeds or not rank.stamps.is_this_thread:
            return False
        since = rank.clock.now()
        feed = _replaced_feed(handle.feed)
        if (
            rank.may_evaluate
        ):  # of a training loader whose batches are a block's it gets as many copies
            of_block = feed in rank.feeds and feed.is_measured and self.is_beside(feed)
            return of_block and handle.taken > (feed.length or 1)
        use = _course(feed).use
        if use is LoopUse.OTHER:
            return feed.handed.turn > 0 and not self._trains_after_all(feed)
        if use is LoopUse.REFUSED:
            return True
        if self.is_beside(feed):
            return handle.taken > 1 and not handle.trains
        handle.note_training()
        rank.work_since(since)
        return False

    def next_batch(self, feed: Feed) -> Any:
        """The next batch; a training loader's as the block asks, up to the end of the script's own epoch."""
        rank = self._rank
        if (
            not rank.stamps.is_this_thread
        ):  # what it fetches for later, no step can be given in its place
            self._seen = self._seen._replace(read_elsewhere=True)
            return feed.real()
        now = rank.clock.now
        since, beside = now(), not self._has_gradients() and self.is_beside(feed)
        asked = ThreadEvent.EVALUATION_ASKED if beside else ThreadEvent.BATCH_ASKED
        rank.tell_at(asked, feed.take_request(since), feed)
        try:
            batch, took, is_steps = self._next_batch(feed, beside)
        except StopIteration:
            rank.tell_at(ThreadEvent.LOOP_ENDED, now(), feed)
            raise
        if is_steps:
            rank.give_batch(since, took, feed)
        else:
            given = now()
            if not rank.clock.runs_ahead:
                rank.ledger.discount(given - since - took)
            rank.tell_at(ThreadEvent.BATCH_GIVEN, given, feed)
        return batch

    def _next_batch(self, feed: Feed, beside: bool) -> tuple[Any, float, bool]:
        """It, the seconds that it took to come, and whether it is one that steps train on, for all that is known."""
        rank, course = self._rank, feed.course or _UNKNOWN
        if feed.handed.turn == 0:
            course = _change_course(feed, first_at_pass=script.passes())
        elif not beside and course.use is LoopUse.OTHER and self._trains_after_all(feed):
            self._seen = self._seen._replace(loaders_are_remade=True)
            course = self._let_stand(feed)
        if course.stands_for is not None:
            feed = course.stands_for
            course = feed.course or _UNKNOWN
        if feed.account.number is None:
            read = self._list_read()
            self._read = [weakref.ref(each) for each in (*read, feed)]
            # of what a feed tells only the stamps are to know
            feed.open_account(FeedAccount(len(read), rank.clock.now, rank.stamps.handle))
        if beside or course.trial is not None:
            event = LoopEvent.ASKED_BESIDE if beside else self._note_request(feed)
            if LoopAction.SERVE_BESIDE in self._handle(feed, event):
                return (*self._batch_beside(feed), False)
            course = _course(feed)
        trains, clock = course.use is not LoopUse.OTHER, self.clock
        if trains and (self._gap.is_open or (clock is not None and clock.paused_since is not None)):
            self._go_on(begins=feed.handed.turn == 0)
        try:
            if feed.is_at_end:
                raise StopIteration
            served = feed.take_next()
        except StopIteration:
            if course.trial is not None:
                _change_course(feed, trial=course.trial.end())
            if not feed.open_loops.tell_their_end:
                self._handle(feed, LoopEvent.CLOSED)
            raise
        if trains and clock is not None and clock.paused_since is not None:
            self._resume()
        return (*served, True)

    def _note_request(self, feed: Feed) -> LoopEvent:
        """A loop on trial asks for another batch: which event that is, for all that is known."""
        self._note_pass(feed)
        course = _course(feed)
        if course.trial is None:
            return LoopEvent.ASKED
        if self._rank.feeds and course.trial.batches >= course.read_before_pass + _SKIPPED:
            return LoopEvent.ASKED_TOO_OFTEN
        _change_course(feed, trial=course.trial.take_batch())
        return LoopEvent.ASKED

    def _note_pass(self, feed: Feed) -> None:
        trial = _course(feed).trial
        if trial is not None and trial.has_passed(script.passes()):
            self._handle(feed, LoopEvent.PASSED)

    def _batch_beside(self, feed: Feed) -> tuple[Any, float]:
        """A batch that no step trains on, and the seconds that it took; while blocks are measured, a copy of one."""
        now = self._rank.clock.now
        self._seen = self._seen._replace(read_beside=True)
        _change_course(feed, is_beside=True)
        if feed in self._rank.feeds:
            self._pause()
            if feed.is_measured or not self._rank.may_evaluate:
                return feed.ring.copy_first(), 0.0
        began = now()
        batch = feed.real()
        took = now() - began
        if not _course(feed).trains:
            feed.pass_by()
        return batch, took

    def closed(self, handle: Handle) -> None:
        """A loop's iterator ended, or the loop dropped it; frameworks' own loops may go on around it."""
        if not self._rank.stamps.is_this_thread:
            return
        self._rank.tell(ThreadEvent.LOOP_ENDED, handle.feed)
        feed = _replaced_feed(handle.feed)
        self._note_pass(feed)
        course = _course(feed)
        if course.trial is not None and (
            course.use is LoopUse.REFUSED or course.trial.is_evaluation(feed.per_step)
        ):
            self._handle(feed, LoopEvent.CLOSED_ON_TRIAL)
        elif course.trains and self.is_beside(feed) and not handle.trains:
            self._handle(feed, LoopEvent.CLOSED_BESIDE)
        elif not handle.feed.loops and not (
            course.trains and handle.taken <= feed.per_step
        ):  # more than a look
            self._handle(feed, LoopEvent.CLOSED)

    def _handle(
        self, feed: Feed, event: LoopEvent, before: Before | None = None
    ) -> tuple[LoopAction, ...]:
        """Go by the table; ``before``: where a loop that is opened goes back to, should it not train."""
        course = _course(feed)
        use, actions = handle_event(course.use, event)
        if use is not course.use:
            trial = None
            if use is LoopUse.ON_TRIAL:
                trial = LoopOnTrial(script.passes(), before)
            elif use is LoopUse.REFUSED:
                trial = course.trial
            _change_course(feed, use=use, trial=trial)
        for action in actions:
            self._do_action(action, feed, course.trial)
        return actions

    def _do_action(self, action: LoopAction, feed: Feed, trial: LoopOnTrial | None) -> None:
        if action is LoopAction.PAUSE:
            self._pause()
        elif action is LoopAction.GO_ON:
            self._go_on(begins=True)
        elif action is LoopAction.WAIT:
            self.acted()
        elif action is LoopAction.LEARN and trial is not None:
            _change_course(
                feed, read_before_pass=max(_course(feed).read_before_pass, trial.batches)
            )
        elif action is LoopAction.UNDO and trial is not None:
            self._undo_loop(feed, trial.mark, trial.batches)
        elif (
            action is LoopAction.RETURN and not self.is_between_epochs
        ):  # within an epoch the training loop goes on
            self._resume()
        elif action is LoopAction.RELEASE:
            feed.release()
        elif action is LoopAction.END_EPOCH:
            self._pause()
            self._gap.open_gap(PATIENCE)

    def _undo_loop(self, feed: Feed, before: Before, read: int) -> None:
        """What a loop read counts for nothing, and the block gets other batches in its place."""
        self._seen = self._seen._replace(read_beside=True)
        feed.restore(before.handed, read)
        if self.clock is not None:
            self.clock.pause(before.began)
        if before.is_between:
            self._gap.open_gap(PATIENCE)

    def stepped(self) -> None:
        """A step of the job ended: loaders still open that were read since the last one train it.

        What follows may take long, of a rank that sits a block out; after ``step_begins`` time counts again.
        """
        if self._gap.is_open:
            self._gap.stop_waiting()
        feeds, read_beside, training = self._list_read(), self._seen.read_beside, self._rank.feeds
        self._seen = self._seen.end_step(script.bus.passes)
        for feed in feeds:
            if (
                feed.course is not None and feed.course.trial is not None
            ):  # to others it means nothing
                self._handle(feed, LoopEvent.STEPPED)
        if not training:  # which loaders train is not settled yet
            self._learn_loaders(feeds, read_beside)
        known = unknown = 0
        for feed in feeds:
            if feed.course is not None and feed.course.is_beside:
                _change_course(feed, is_beside=False)
            trained = feed.step_ended()
            unknown += trained
            if feed in training:
                known += trained
        # a loader made again is known by its second batch
        self.samples += known or unknown

    def _learn_loaders(self, feeds: list[Feed], read_beside: bool) -> None:
        """Which loaders the step that ended was read from."""
        read = tuple(feed for feed in feeds if feed.handed.since_step)
        if not read:  # this job reads what it trains on without gradients
            for feed in feeds:
                if feed.loops > 0 and _course(feed).is_beside:
                    _change_course(feed, without_gradients=True)
        self._seen = self._seen.learn(
            read, any(_course(feed).trains for feed in feeds), read_beside
        )
        for feed in read:
            if feed.loops > 0 or not feed.open_loops.tell_their_end:
                self._handle(feed, LoopEvent.STEPPED_ON)
                feed.open_account(feed.account._replace(goes_on=self._rank.orders.endless))

    def skipped_steps(self) -> None:
        """What trained since the last step belongs to none: another optimizer's steps are the job's from now on."""
        self._seen = self._seen._replace(read_beside=True)
        for feed in self._list_read():
            feed.skip_step()
        self._rank.begin_step()
        if self.clock is not None:
            self.clock.skip(self._rank.clock.synchronize())

    def step_begins(self) -> None:
        """The script goes on after a step; where devices run ahead, what Stash did meanwhile has cost it nothing."""
        if self._gap.is_open:
            self._gap.open_gap(PATIENCE)
        self._rank.begin_step()
        if self.clock is not None and not self._rank.clock.runs_ahead:
            self.clock.step_begins(self._rank.clock.now())

    def acted(self, saved: bool = False) -> None:
        """The script does something else than train; after it ``saved``, not much more is to come."""
        if self.is_between_epochs:
            self._gap.open_gap(PATIENCE_AFTER_SAVING if saved else PATIENCE)

    def leave_alone(self) -> None:
        """Steps follow whose loops tell nothing: if those do not end in a while, training is over."""
        self._gap.open_gap(PATIENCE)

    def stop_waiting(self) -> None:
        """Wait no more for the next epoch."""
        self._gap.stop_waiting()

    def _go_on(self, begins: bool) -> None:
        """``begins``: with its first batch, for which the wait is no step's where somebody else accounts for it."""
        if self.is_between_epochs:
            self._gap.close()
        if not begins or (self._rank.orders.trial is None and not self._rank.ledger.sees_epochs):
            self._resume()

    def _pause(self) -> None:
        if self.clock is not None:
            self.clock.pause(self._rank.clock.synchronize())

    def _resume(self) -> None:
        if self.clock is not None and self.clock.paused_since is not None:
            self.clock.resume(self._rank.clock.synchronize())

    def _trains_after_all(self, feed: Feed) -> bool:
        """Whether a loader that looked like a validation's is read while the job trains."""
        course = _course(feed)
        may = bool(self._rank.feeds) and not (course.trains or course.stands_for)
        return may and course.first_at_pass < script.passes()

    def _let_stand(self, feed: Feed) -> LoaderCourse:
        """From now on a loader that was made again for an epoch reads what blocks ask of the one that it replaces."""
        free = [known for known in self._rank.feeds if not known.loops and known is not feed]
        if not free:
            return _course(feed)
        known = next((known for known in free if known.signature == feed.signature), free[0])
        known.take_over(feed)
        if not known.is_measured:
            known.read_on(feed)
        return _change_course(feed, stands_for=known)


_UNKNOWN = LoaderCourse()


def _course(feed: Feed) -> LoaderCourse:
    return feed.course or _UNKNOWN


def _change_course(feed: Feed, **changes: Any) -> LoaderCourse:
    feed.remember_course(replace(_course(feed), **changes))
    return _course(feed)


def _replaced_feed(feed: Feed) -> Feed:
    """The one that it stands for, or itself."""
    return _course(feed).stands_for or feed
