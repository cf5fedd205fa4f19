"""Which row of the ledger each moment of the training thread belongs to: events in, a row out, by one table.

A second belongs to the row that the thread is in; an event ends it and begins another. What a loop over a loader was
for is known at its end at the latest: without a backward pass meanwhile it was an evaluation, and what it took moves
there. Rows sum to the wall by construction. Pure: no clock, no thread, no PyTorch; who tells events is not known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from stash.core.ledger_rows import (
    BACKWARD,
    CHECKPOINT,
    COLLECTIVE,
    COLLECTOR,
    COMPILATION,
    EPOCH_END,
    EPOCH_START,
    EVALUATION,
    FORWARD,
    INPUT,
    LOOP,
    OPTIMIZER,
    OTHER,
    START_UP,
)
from stash.measure.agent.runner.loop_table import LoopOnTrial
from stash.measure.agent.thread_events import ThreadEvent

_MOST_OCCURRENCES = 50
"""Of a row, whose seconds are told one by one."""


_WITHIN_A_STEP = (
    INPUT,
    FORWARD,
    BACKWARD,
    OPTIMIZER,
    LOOP,
    EVALUATION,
    EPOCH_START,
    EPOCH_END,
    OTHER,
)
_NOW_AND_THEN = frozenset({EPOCH_START, EPOCH_END, EVALUATION, CHECKPOINT, COLLECTOR, COMPILATION})
_INTERRUPTS = (
    ThreadEvent.CLEARING_BEGINS,
    ThreadEvent.COLLECTIVE_BEGINS,
    ThreadEvent.SAVE_BEGINS,
    ThreadEvent.COLLECTION_BEGINS,
    ThreadEvent.COMPILATION_BEGINS,
)
_RETURNS = (
    ThreadEvent.CLEARING_ENDED,
    ThreadEvent.COLLECTIVE_ENDED,
    ThreadEvent.SAVE_ENDED,
    ThreadEvent.COLLECTION_ENDED,
    ThreadEvent.COMPILATION_ENDED,
)
_TABLE: dict[ThreadEvent, dict[str, str]] = {
    ThreadEvent.ITERATOR_ASKED: dict.fromkeys(_WITHIN_A_STEP, EPOCH_START),
    ThreadEvent.EVALUATION_ASKED: dict.fromkeys(_WITHIN_A_STEP, EVALUATION),
    ThreadEvent.BATCH_ASKED: {row: INPUT for row in _WITHIN_A_STEP if row != EPOCH_START},
    ThreadEvent.BATCH_GIVEN: dict.fromkeys((INPUT, EPOCH_START, EPOCH_END, LOOP), FORWARD),
    ThreadEvent.LOOP_ENDED: {INPUT: EPOCH_END, EPOCH_START: EPOCH_END, EVALUATION: LOOP},
    ThreadEvent.BACKWARD_BEGINS: dict.fromkeys(_WITHIN_A_STEP, BACKWARD),
    ThreadEvent.BACKWARD_ENDED: {BACKWARD: OPTIMIZER},
    ThreadEvent.STEPPED: dict.fromkeys((*_WITHIN_A_STEP, START_UP), OTHER),
    ThreadEvent.SCRIPT_GOES_ON: {OTHER: LOOP},
    ThreadEvent.CLEARING_BEGINS: dict.fromkeys((LOOP, FORWARD), OPTIMIZER),
    ThreadEvent.COLLECTIVE_BEGINS: dict.fromkeys((LOOP, FORWARD, BACKWARD, OPTIMIZER), COLLECTIVE),
    ThreadEvent.SAVE_BEGINS: dict.fromkeys((*_WITHIN_A_STEP, COLLECTIVE, COLLECTOR), CHECKPOINT),
    ThreadEvent.COMPILATION_BEGINS: dict.fromkeys((*_WITHIN_A_STEP, COLLECTIVE), COMPILATION),
    ThreadEvent.COLLECTION_BEGINS: {
        row: COLLECTOR for row in (*_WITHIN_A_STEP, COLLECTIVE, CHECKPOINT) if row != EPOCH_END
    },
}
"""What an event makes of a row; where there is none, the row goes on. A process starts up until its first step.

Collecting between epochs is no step's: it belongs to what made the garbage.
"""
ROW_EVENTS = frozenset({*_TABLE, *_RETURNS, ThreadEvent.UPDATE_BEGINS})
"""Those that a ledger is to know of."""


class RunLedger:
    """The account of one training thread, from ``began`` on; moments in seconds of one clock.

    ``tell_late_evaluation`` is called for each loop that turns out to be an evaluation only when it has ended.
    """

    def __init__(
        self, began: float, tell_late_evaluation: Callable[[], None] = lambda: None
    ) -> None:
        self.began = began
        self._tell_late_evaluation = tell_late_evaluation
        self._at = (START_UP, began)
        """The row that the thread is in, and a moment: what comes after that is not accounted for yet."""
        self.steps = 0
        self._loop_before = 0.0
        """What ``loop`` had when the latest step ended."""
        self.seconds: dict[str, float] = defaultdict(float)
        self.occurrences: dict[str, list[tuple[int, float]]] = {row: [] for row in _NOW_AND_THEN}
        """Of each: after how many steps it began, and the seconds that it took so far."""
        self._trial: LoopOnTrial | None = None
        """The latest loop; its mark: what rows had when it began."""
        self._before: list[str] = []
        """Rows that were interrupted and are gone back to, the innermost last."""
        self._depth = 0
        """Of backward passes within each other: recomputing what was not kept is a part of the outermost."""
        self._given_at: float | None = None
        """What ``forward`` had when a batch came with which no model was called yet, for all that is known."""
        self.model_calls = 0
        """That were the first ones with a batch."""
        self.second_passes = 0.0
        """Seconds of ``forward`` that were ``loop`` until another backward pass over the same batch began."""
        self._passed_at: float | None = None
        """What ``optimizer`` had when a backward pass ended that no update has followed yet."""
        self._is_updated_within = False
        """An optimizer steps within a backward pass, as those of single parameters do in hooks of their gradients."""
        self.before_updates: float | None = None
        """Seconds of ``optimizer`` between backward passes and updates; ``None``: no update was seen to begin."""
        self.prepared = 0.0
        """Seconds of ``loop`` between batches and those."""
        self._first_asked: float | None = None
        """When the first iterator was asked for, whose first batch has not come."""
        self._is_between_epochs = False
        """A loop that trained has ended, and no backward pass has followed."""
        self._ended_ahead = False
        """It had ended before the latest backward pass: what reads it has a batch ahead of the step, as Accelerate."""

    @property
    def row(self) -> str:
        """That the thread is in."""
        return self._at[0]

    def handle(self, event: ThreadEvent, now: float, loader: object = None) -> None:
        """The next event of the thread; ``loader``: of those that a loader has to do with."""
        row, since = self._at
        now = max(now, since)  # a batch was asked for before what came meanwhile, as a collection
        prepare = _PREPARATIONS[event]
        if prepare is not None:
            if prepare(self, row, now, loader):
                return
            row, since = self._at
        self.seconds[row] += now - since
        if row in _NOW_AND_THEN:
            self._prolong(row, now - since)
        following = _TABLE[event].get(row, row)
        if following == LOOP and self._is_updated_within:
            following, self._is_updated_within = BACKWARD, False
        elif following == LOOP and self._is_between_epochs:
            following = EPOCH_END
        elif following == EPOCH_END:
            self._is_between_epochs = True
        self._at = following, now
        if following != row and following in _NOW_AND_THEN:
            self.occurrences[following].append((self.steps, 0.0))
        if event is ThreadEvent.STEPPED:
            self.steps += 1
            self._loop_before = self.seconds.get(LOOP, 0.0)

    def discount(self, seconds: float) -> None:
        """So many seconds of the row that the thread is in were Stash's own work."""
        row, _ = self._at
        if row != START_UP:
            self.seconds[row] -= seconds
            self.seconds[OTHER] += seconds
            self._prolong(row, -seconds)

    def _account(self, now: float) -> None:
        """Up to ``now``, for the row that the thread is in."""
        row, since = self._at
        self._at = row, now
        self.seconds[row] += now - since
        self._prolong(row, now - since)

    def _prolong(self, row: str, seconds: float) -> None:
        """The latest occurrence of a row, if it has any, took so much longer."""
        if seen := self.occurrences.get(row):
            at_steps, took = seen[-1]
            seen[-1] = at_steps, took + seconds

    @property
    def row_of_look(self) -> str:
        """The row that a look at the thread counts for: the first epoch's start is one, too."""
        is_first = self._first_asked is not None and self.row == START_UP
        return EPOCH_START if is_first else self.row

    def _interrupt(self, row: str, now: float, loader: object) -> bool:
        self._before.append(row)
        return False

    def _begin_collective(self, row: str, now: float, loader: object) -> bool:
        """Of an update under way it is the optimizer's; before one, gradients are averaged by hand."""
        self._before.append(row)
        return row == OPTIMIZER and self._passed_at is None

    def _return(self, row: str, now: float, loader: object) -> bool:
        """The thread goes on with what was interrupted, which is no new occurrence of that."""
        before = self._before.pop() if self._before else row
        if row not in (before, START_UP):
            self._account(now)
            self._rename(before)
        return True

    def _begin_pass(self, row: str, now: float, loader: object) -> bool:
        self._depth += 1
        if self._depth > 1:
            return True
        self._trial, self._is_between_epochs, self._given_at = None, False, None
        self._ended_ahead = False
        if row == LOOP and self.sees_loaders:
            # another pass over the batch that it has, as of a second optimizer
            self.second_passes += self._move_to_forward(LOOP, self._loop_before, now)
        elif row == OPTIMIZER and self._passed_at is not None:
            # no update since the pass before: gradients are added up
            self._move_to_forward(OPTIMIZER, self._passed_at, now)
        elif row == EPOCH_END:
            self._was_no_end(now, FORWARD)  # over the batch that was ahead
        return False

    def _move_to_forward(self, row: str, before: float, now: float) -> float:
        """What the row of the thread has beyond ``before`` was a forward pass, of so many seconds."""
        self._account(now)
        passed = self.seconds[row] - before
        self.seconds[row] -= passed
        self.seconds[FORWARD] += passed
        self._rename(FORWARD)
        return passed

    def _end_pass(self, row: str, now: float, loader: object) -> bool:
        is_outermost = self._depth == 1
        self._depth = max(0, self._depth - 1)
        if is_outermost:
            self._passed_at = self.seconds.get(OPTIMIZER, 0.0)
        return not is_outermost

    def _begin_update(self, row: str, now: float, loader: object) -> bool:
        self._is_updated_within = self._depth > 0
        if row == OPTIMIZER and self._passed_at is not None:
            self._account(now)
            gap = self.seconds[OPTIMIZER] - self._passed_at
            self.before_updates = gap + (self.before_updates or 0.0)
        self._passed_at = None
        return True

    def _ask_iterator(self, row: str, now: float, loader: object) -> bool:
        """The first epoch's start lies in starting up, and is known by itself, too."""
        if row == START_UP:
            self._first_asked = now
        else:
            self._trial = LoopOnTrial(mark=(dict(self.seconds), self.prepared), loader=loader)
        return False

    def _ask_batch(self, row: str, now: float, loader: object) -> bool:
        if row == OPTIMIZER:
            self._rename(LOOP)  # a pass whose gradients are accumulated: no optimizer followed
        elif row == EPOCH_END:
            self._was_no_end(now, LOOP)
        return False

    def _take_batch(self, row: str, now: float, loader: object) -> bool:
        if self._trial is not None and loader is self._trial.loader:
            self._trial = self._trial.take_batch()
        if self._given_at is None:
            self._given_at = self.seconds.get(FORWARD, 0.0)
        if self._first_asked is not None and row == START_UP:
            self.occurrences[EPOCH_START].append((0, now - self._first_asked))
            self._first_asked = None
        return False

    def _call_model(self, row: str, now: float, loader: object) -> bool:
        """What came since the batch was the script's own; without a loader, since the step."""
        if row == FORWARD and self._given_at is not None:
            self._account(now)
            own = max(0.0, self.seconds[FORWARD] - self._given_at)
            self.seconds[FORWARD] -= own
            self.seconds[LOOP] += own
            self.prepared += own
            self.model_calls += 1
        elif row == LOOP and not self.sees_loaders:
            self._account(now)
            self._rename(FORWARD)
            self.model_calls += 1
        self._given_at = None
        return True

    @property
    def sees_loaders(self) -> bool:
        return INPUT in self.seconds

    def _end_evaluated_loop(self, row: str, now: float, loader: object) -> bool:
        self._is_between_epochs |= self._ended_ahead
        return self._end_loop(row, now, loader, is_evaluation=True)

    def _end_loop(self, row: str, now: float, loader: object, is_evaluation: bool = False) -> bool:
        trial = self._trial
        if trial is not None and loader is trial.loader:
            self._trial = None
            if is_evaluation or trial.is_evaluation():
                self._was_evaluation(*trial.mark)
        return False

    def _was_no_end(self, now: float, row: str) -> None:
        """The loop over some other loader has ended, or one that reads ahead: the epoch goes on, in this ``row``."""
        self._account(now)
        ends = self.occurrences[EPOCH_END]
        _, took = ends.pop()
        self.seconds[EPOCH_END] -= took
        self.seconds[row] += took
        if not ends:
            del self.seconds[EPOCH_END]
        self._is_between_epochs, self._ended_ahead = False, True
        self._rename(row)

    def _was_evaluation(self, before: dict[str, float], prepared: float) -> None:
        moved = self.prepared - prepared
        self.seconds[LOOP] -= moved
        self.prepared = prepared
        for row in (EPOCH_START, INPUT, FORWARD):
            took = self.seconds[row] - before.get(row, 0.0)
            self.seconds[row] -= took
            moved += took
        self.seconds[EVALUATION] += moved
        self.occurrences[EPOCH_START].pop()
        self.occurrences[EVALUATION].append((self.steps, moved))
        self._is_between_epochs |= self._ended_ahead
        if self.row in (EPOCH_START, INPUT, FORWARD):
            self._rename(EVALUATION)
        self._tell_late_evaluation()

    def settle(self, now: float) -> dict[str, float]:
        """Rows up to ``now``, as a copy."""
        self._account(now)
        return dict(self.seconds)

    def _rename(self, row: str) -> None:
        """The thread has been in that row since the last moment."""
        self._at = row, self._at[1]

    def rows(self, now: float, timed: dict[str, float]) -> list[dict[str, Any]]:
        """Fields of the rows of ``records.profile``; ``timed``: what rows had when timing began."""
        all_seconds = self.settle(now)
        # the first epoch's start lies in starting up
        beside = sorted(
            row for row, seen in self.occurrences.items() if seen and row not in all_seconds
        )
        found = []
        for row in (*sorted(all_seconds), *beside):
            seen, took = self.occurrences.get(row, []), all_seconds.get(row, 0.0)
            found.append(
                {
                    "row": row,
                    "seconds": took,
                    "timed_seconds": took - timed.get(row, 0.0),
                    "each": [seconds for _, seconds in seen[:_MOST_OCCURRENCES]],
                    "at_steps": [at for at, _ in seen[:_MOST_OCCURRENCES]],
                    "times": len(seen),
                }
            )
        return found


Preparation: TypeAlias = Callable[[RunLedger, str, float, object], bool]
"""What is to be done before the table is asked; whether that was all."""
_PREPARES: Mapping[ThreadEvent, Preparation] = {
    **dict.fromkeys(_INTERRUPTS, RunLedger._interrupt),
    ThreadEvent.COLLECTIVE_BEGINS: RunLedger._begin_collective,
    **dict.fromkeys(_RETURNS, RunLedger._return),
    ThreadEvent.BACKWARD_BEGINS: RunLedger._begin_pass,
    ThreadEvent.BACKWARD_ENDED: RunLedger._end_pass,
    ThreadEvent.UPDATE_BEGINS: RunLedger._begin_update,
    ThreadEvent.ITERATOR_ASKED: RunLedger._ask_iterator,
    ThreadEvent.BATCH_ASKED: RunLedger._ask_batch,
    ThreadEvent.BATCH_GIVEN: RunLedger._take_batch,
    ThreadEvent.MODEL_CALLED: RunLedger._call_model,
    ThreadEvent.EVALUATION_ASKED: RunLedger._end_evaluated_loop,
    ThreadEvent.LOOP_ENDED: RunLedger._end_loop,
}
_PREPARATIONS = [_PREPARES.get(event) for event in (ThreadEvent(1), *ThreadEvent)]
