"""Which row of the ledger each moment of the training thread belongs to: events in, a row out, by one table.

A second belongs to the row that the thread is in; an event ends it and begins another. What a loop over a loader was
for is known at its end at the latest: without a backward pass meanwhile it was an evaluation, and what it took moves
there. Rows sum to the wall by construction. Pure: no clock, no thread, no PyTorch; who tells events is not known.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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
"""Whose seconds are kept one by one."""


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
_NOW_AND_THEN = (EPOCH_START, EPOCH_END, EVALUATION, CHECKPOINT, COLLECTOR, COMPILATION)
_TABLE: dict[tuple[str, ThreadEvent], str] = {
    **{(row, ThreadEvent.ITERATOR_ASKED): EPOCH_START for row in _WITHIN_A_STEP},
    **{(row, ThreadEvent.EVALUATION_ASKED): EVALUATION for row in _WITHIN_A_STEP},
    **{(row, ThreadEvent.BATCH_ASKED): INPUT for row in _WITHIN_A_STEP if row != EPOCH_START},
    **{(row, ThreadEvent.BATCH_GIVEN): FORWARD for row in (INPUT, EPOCH_START, EPOCH_END, LOOP)},
    **{(row, ThreadEvent.LOOP_ENDED): EPOCH_END for row in (INPUT, EPOCH_START)},
    (EVALUATION, ThreadEvent.LOOP_ENDED): LOOP,
    **{(row, ThreadEvent.BACKWARD_BEGINS): BACKWARD for row in _WITHIN_A_STEP},
    (BACKWARD, ThreadEvent.BACKWARD_ENDED): OPTIMIZER,
    **{(row, ThreadEvent.STEPPED): OTHER for row in (*_WITHIN_A_STEP, START_UP)},
    (OTHER, ThreadEvent.SCRIPT_GOES_ON): LOOP,
    **{(row, ThreadEvent.COLLECTIVE_BEGINS): COLLECTIVE for row in (LOOP, FORWARD)},
    **{
        (row, ThreadEvent.SAVE_BEGINS): CHECKPOINT
        for row in (*_WITHIN_A_STEP, COLLECTIVE, COLLECTOR)
    },
    **{(row, ThreadEvent.COMPILATION_BEGINS): COMPILATION for row in (*_WITHIN_A_STEP, COLLECTIVE)},
    **{
        (row, ThreadEvent.COLLECTION_BEGINS): COLLECTOR
        for row in (*_WITHIN_A_STEP, COLLECTIVE, CHECKPOINT)
        if row != EPOCH_END
    },
}
"""What an event makes of a row; where there is none, the row goes on. A process starts up until its first step.

Collecting between epochs is no step's: it belongs to what made the garbage.
"""


_INTERRUPTS = (
    ThreadEvent.COLLECTIVE_BEGINS,
    ThreadEvent.SAVE_BEGINS,
    ThreadEvent.COLLECTION_BEGINS,
    ThreadEvent.COMPILATION_BEGINS,
)
_RETURNS = (
    ThreadEvent.COLLECTIVE_ENDED,
    ThreadEvent.SAVE_ENDED,
    ThreadEvent.COLLECTION_ENDED,
    ThreadEvent.COMPILATION_ENDED,
)


@dataclass
class Occurrences:
    """Of a row that comes now and then."""

    seconds: list[float] = field(default_factory=list)
    at_steps: list[int] = field(default_factory=list)
    times: int = 0

    def begin(self, steps: int) -> None:
        self.times += 1
        if self.times <= _MOST_OCCURRENCES:
            self.seconds.append(0.0)
            self.at_steps.append(steps)

    def last_for(self, seconds: float) -> None:
        """The one under way took this much longer."""
        if 0 < self.times <= _MOST_OCCURRENCES:
            self.seconds[-1] += seconds

    def take_back(self) -> None:
        """The last one was something else."""
        if self.times <= _MOST_OCCURRENCES:
            self.seconds.pop()
            self.at_steps.pop()
        self.times -= 1


class _Moment(NamedTuple):
    row: str
    since: float
    """What comes after it is not accounted for yet."""


class RunLedger:
    """The account of one training thread, from ``began`` on; moments in seconds of one clock."""

    def __init__(self, began: float) -> None:
        self.began = began
        self._at = _Moment(START_UP, began)
        self.steps = 0
        self.late_evaluations = 0
        """Loops that turned out to be evaluations only when they had ended."""
        self.seconds: dict[str, float] = defaultdict(float)
        self.occurrences = {row: Occurrences() for row in _NOW_AND_THEN}
        self._trial: LoopOnTrial | None = None
        """The latest loop; its mark: what rows had when it began."""
        self._before: list[str] = []
        """Rows that were interrupted and are gone back to, the innermost last."""
        self._depth = 0
        """Of backward passes within each other: recomputing what was not kept is a part of the outermost."""
        self._first_asked: float | None = None
        """When the first iterator was asked for, whose first batch has not come."""
        self._is_between_epochs = False
        """A loop that trained has ended, and no backward pass has followed."""

    @property
    def row(self) -> str:
        """That the thread is in."""
        return self._at.row

    def handle(self, event: ThreadEvent, now: float, loader: object = None) -> None:
        """The next event of the thread; ``loader``: of those that a loader has to do with."""
        if event in _RETURNS:
            self._return(now)
            return
        if event in _INTERRUPTS:
            self._before.append(self.row)
        elif event is ThreadEvent.BACKWARD_BEGINS or event is ThreadEvent.BACKWARD_ENDED:
            outermost = self._depth == (0 if event is ThreadEvent.BACKWARD_BEGINS else 1)
            self._depth = max(0, self._depth + (1 if event is ThreadEvent.BACKWARD_BEGINS else -1))
            if not outermost:
                return
        self._follow_loops(event, loader)
        if self.row == START_UP:
            self._start_up(event, now)
        if event is ThreadEvent.BATCH_ASKED and self.row == OPTIMIZER:
            # a pass whose gradients are accumulated: no optimizer followed
            self._move(LOOP, now, relabel=True)
        if event is ThreadEvent.BACKWARD_BEGINS and self.row == LOOP and INPUT in self.seconds:
            # another pass over the batch that it has, as of a second optimizer
            self._move(FORWARD, now, relabel=True)
        if self.row == EPOCH_END and event in (
            ThreadEvent.BATCH_ASKED,
            ThreadEvent.BACKWARD_BEGINS,
        ):
            self._was_no_end(now)
        row = _TABLE.get((self.row, event), self.row)
        self._is_between_epochs = row == EPOCH_END or (
            self._is_between_epochs and event is not ThreadEvent.BACKWARD_BEGINS
        )
        self._move(EPOCH_END if row == LOOP and self._is_between_epochs else row, now)
        if event is ThreadEvent.STEPPED:
            self.steps += 1

    @property
    def row_of_look(self) -> str:
        """The row that a look at the thread counts for: the first epoch's start is one, too."""
        return self.row if self._first_asked is None else EPOCH_START

    def _start_up(self, event: ThreadEvent, now: float) -> None:
        """The first epoch's start lies in it, and is known by itself, too."""
        if event is ThreadEvent.ITERATOR_ASKED:
            self._first_asked = now
        elif event is ThreadEvent.BATCH_GIVEN and self._first_asked is not None:
            first = self.occurrences[EPOCH_START]
            first.begin(0)
            first.last_for(now - self._first_asked)
            self._first_asked = None

    def _follow_loops(self, event: ThreadEvent, loader: object) -> None:
        trial = self._trial
        if event is ThreadEvent.ITERATOR_ASKED and self.row != START_UP:
            self._trial = LoopOnTrial(mark=dict(self.seconds), loader=loader)
        elif event is ThreadEvent.BACKWARD_BEGINS:
            self._trial = None
        elif trial is None or loader is not trial.loader:
            return
        elif event is ThreadEvent.BATCH_GIVEN:
            self._trial = trial.take_batch()
        elif event is ThreadEvent.EVALUATION_ASKED or event is ThreadEvent.LOOP_ENDED:
            self._trial = None
            if trial.is_evaluation() or event is ThreadEvent.EVALUATION_ASKED:
                self._was_evaluation(trial.mark)

    def _was_no_end(self, now: float) -> None:
        """The loop over some other loader has ended, or one that reads ahead: the epoch goes on."""
        self._account(now)
        ends = self.occurrences[EPOCH_END]
        took = ends.seconds[-1] if 0 < ends.times <= _MOST_OCCURRENCES else 0.0
        self.seconds[EPOCH_END] -= took
        self.seconds[LOOP] += took
        ends.take_back()
        if not ends.times:
            del self.seconds[EPOCH_END]
        self._is_between_epochs = False
        self._at = _Moment(LOOP, now)

    def _was_evaluation(self, before: dict[str, float]) -> None:
        self.late_evaluations += 1
        moved = 0.0
        for row in (EPOCH_START, INPUT, FORWARD):
            took = self.seconds[row] - before.get(row, 0.0)
            self.seconds[row] -= took
            moved += took
        self.seconds[EVALUATION] += moved
        starts, evaluations = self.occurrences[EPOCH_START], self.occurrences[EVALUATION]
        starts.take_back()
        evaluations.begin(self.steps)
        evaluations.last_for(moved)
        if self.row in (EPOCH_START, INPUT, FORWARD):
            self._at = self._at._replace(row=EVALUATION)

    def _return(self, now: float) -> None:
        """The thread goes on with what was interrupted, which is no new occurrence of that."""
        row = self._before.pop() if self._before else self.row
        if self.row not in (row, START_UP):
            self._account(now)
            self._at = _Moment(row, now)

    def settle(self, now: float) -> dict[str, float]:
        """Rows up to ``now``, as a copy."""
        self._account(now)
        return dict(self.seconds)

    def _move(self, row: str, now: float, relabel: bool = False) -> None:
        if relabel:
            self._at = self._at._replace(row=row)
        self._account(now)
        if row != self.row:
            self._at = _Moment(row, now)
            if row in self.occurrences:
                self.occurrences[row].begin(self.steps)

    def _account(self, now: float) -> None:
        row, since = self._at
        self._at = _Moment(row, now)
        self.seconds[row] += now - since
        if row in self.occurrences:
            self.occurrences[row].last_for(now - since)

    def rows(self, now: float, timed: dict[str, float]) -> list[dict[str, Any]]:
        """Fields of the rows of ``records.profile``; ``timed``: what rows had when timing began."""
        seconds, found = self.settle(now), []
        for row in sorted(seconds):
            seen = self.occurrences.get(row, Occurrences())
            found.append(
                {
                    "row": row,
                    "seconds": seconds[row],
                    "timed_seconds": seconds[row] - timed.get(row, 0.0),
                    "each": list(seen.seconds),
                    "at_steps": list(seen.at_steps),
                    "times": seen.times,
                }
            )
        for row in sorted(set(self.occurrences) - set(seconds)):
            if (seen := self.occurrences[row]).times:  # the first epoch's start lies in starting up
                found.append(
                    {
                        "row": row,
                        "seconds": 0.0,
                        "each": seen.seconds,
                        "at_steps": seen.at_steps,
                        "times": seen.times,
                    }
                )
        return found
