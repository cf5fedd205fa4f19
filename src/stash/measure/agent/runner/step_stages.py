"""The stages of a step, as events of its thread make them: events in, marks of stages, a row at the end. Pure.

A step is the list of its marks: which stage began at which moment. What is learned later renames marks: that a loop
was an evaluation, that a gradient was not the last one. A row is the difference of neighbouring marks, so stages add
up to their step exactly; on a device by the events in its queue that stand beside the marks (``device_stages``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MethodType
from typing import Any, TypeAlias

from stash.measure.agent.thread_events import INTERRUPTIONS, RETURNS, ThreadEvent
from stash.measure.protocol.stamped import (
    BEGAN,
    DELAY,
    ENDED,
    EXCHANGE_DELAY,
    FIELDS,
    INPUT_DELAY,
    INPUTS,
    LOADERS,
    StepStage,
)

_BETWEEN, _INPUT, _TRANSFER, _FORWARD = (
    int(StepStage[name]) for name in ("BETWEEN", "INPUT", "TRANSFER", "FORWARD")
)
_BACKWARD, _EXCHANGE, _OPTIMIZER = map(
    int, (StepStage.BACKWARD, StepStage.EXCHANGE, StepStage.OPTIMIZER)
)
_EPOCH_START, _EVALUATION = int(StepStage.EPOCH_START), int(StepStage.EVALUATION)
NO_STEP = -1
"""Between a step's end and the next one's begin, while Stash works."""
_BEFORE_PASSES = (_BETWEEN, _FORWARD, _OPTIMIZER)
_OF_A_LOOP = (_EPOCH_START, _INPUT, _TRANSFER, _FORWARD)
_MOST_MARKS = 20_000

Mark: TypeAlias = tuple[int, float, float, int, Any]
"""The stage that begins; when, in seconds; the thread's delay by then; the number of the loader that is read; the
event in a device's queue, if one is followed."""
Act: TypeAlias = Callable[[float, float, Any], None]
"""Of the moment, the thread's delay by then, and what comes with an event."""
Stages: TypeAlias = Mapping[ThreadEvent, StepStage]
_E = ThreadEvent
STAGES: Stages = {
    _E.READ_ENDED: StepStage.FORWARD,
    _E.READ_FAILED: StepStage.BETWEEN,
    _E.REPLAYED: StepStage.FORWARD,
    _E.COLLECTIVE_BEGINS: StepStage.COLLECTIVE,
}
"""Which stage an event begins; where there is nothing, the stage goes on, but for ``_ACTS``."""
WATCHED_STAGES: Stages = {
    **STAGES,
    _E.EPOCH_BEGINS: StepStage.EPOCH_START,
    _E.FIRST_ASKED: StepStage.EPOCH_START,
    _E.EVALUATION_BEGINS: StepStage.EVALUATION,
    _E.EVALUATION_ASKED: StepStage.EVALUATION,
    _E.LOOP_ENDED: StepStage.BETWEEN,
    _E.SAVE_BEGINS: StepStage.CHECKPOINT,
    _E.COLLECTION_BEGINS: StepStage.COLLECTOR,
}
"""The same of a watched run, which has no ledger beside it."""


class StepUnderWay:
    """A step as far as it has come, and the next one after it, by a table of ``stages``."""

    __slots__ = ("_before", "_passes", "_record", "_updated", "acts", "marks")

    def __init__(self, first: Mark, stages: Stages = STAGES) -> None:
        self.marks = [first]
        self._record: Callable[[], Any] | None = None
        self._before: list[int] = []
        """Stages that were interrupted and are gone back to, the innermost last."""
        self._passes = 0
        """Backward passes within each other."""
        self.acts: list[Act] = [
            self._choose_act(event, stages.get(event)) for event in (ThreadEvent(1), *ThreadEvent)
        ]
        """What each event does to it, by its number."""
        self._updated = 0
        """So many marks came before the end of the last update that another optimizer made."""

    def follow(self, record: Callable[[], Any]) -> None:
        """From now on ``record()`` puts an event into a device's queue for each mark."""
        self._record = record
        del self.marks[:-1]

    @property
    def stage(self) -> int:
        return self.marks[-1][0]

    def handle(self, event: ThreadEvent, now: float, delay: float, about: Any = None) -> None:
        """The thread's next event, ``now`` and with that ``delay`` so far."""
        self.acts[event](now, delay, about)

    def _choose_act(self, event: ThreadEvent, begins: StepStage | None) -> Act:
        """What one does that ``begins`` a stage, if any."""
        stage = None if begins is None else int(begins)
        if event in _ACTS:
            return MethodType(_ACTS[event], self)
        if event in RETURNS:
            return self._return
        return partial(self._interrupt if event in INTERRUPTIONS else self._begin, stage)

    def _begin(self, stage: int | None, now: float, delay: float, _: Any) -> None:
        if stage is not None and stage != self.marks[-1][0]:
            self._add_mark(stage, now, delay)

    def _interrupt(self, stage: int | None, now: float, delay: float, _: Any) -> None:
        self._before.append(self.marks[-1][0])
        self._begin(stage, now, delay, None)

    def _return(self, now: float, delay: float, _: Any) -> None:
        if self._before:
            self._begin(self._before.pop(), now, delay, None)

    def _begin_copy(self, now: float, delay: float, _: Any) -> None:
        """One within a wait is a part of that."""
        self._interrupt(_TRANSFER if self.stage in _BEFORE_PASSES else None, now, delay, None)

    def _add_mark(self, stage: int, now: float, delay: float, loader: int = 0) -> None:
        """A stage begins."""
        record, marks = self._record, self.marks
        marks.append((stage, now, delay, loader, None if record is None else record()))
        if len(marks) > _MOST_MARKS and record is None:
            marks[:] = _summed_up(marks)
            self._updated = 0

    def _begin_read(self, now: float, delay: float, loader: int) -> None:
        self._add_mark(_INPUT, now, delay, loader)

    def _begin_pass(self, now: float, delay: float, _: Any) -> None:
        """One inside another (checkpointing) is part of it."""
        self._passes += 1
        if self._passes == 1:
            self._add_mark(_BACKWARD, now, delay)

    def _end_pass(self, now: float, delay: float, _: Any) -> None:
        self._passes = max(0, self._passes - 1)
        if self._passes == 0:
            self._add_mark(_OPTIMIZER, now, delay)

    def _end_gradients(self, now: float, delay: float, _: Any) -> None:
        """If an exchange is under way already, a later one than was taken for the last did: there was no wait."""
        if self.stage == _EXCHANGE:
            self.marks[-1] = (_BACKWARD, *self.marks[-1][1:])
        self._add_mark(_EXCHANGE, now, delay)

    def _begin_forward(self, now: float, delay: float, _: Any) -> None:
        """What came before it in the step was no optimizer's, but for its update."""
        if self.stage == _OPTIMIZER:
            self._rename(self._updated, None, (_OPTIMIZER,), _BETWEEN)
        if self.stage == _BETWEEN:
            self._add_mark(_FORWARD, now, delay)

    def _end_update_beside(self, now: float, delay: float, _: Any) -> None:
        """… which is no pause before the step."""
        is_between, last = self.stage == _BETWEEN, len(self.marks)
        self._end_update(now, delay, None)
        if is_between:
            self._rename(0, last, (_BETWEEN,), _OPTIMIZER)

    def _end_update(self, now: float, delay: float, _: Any) -> None:
        self._add_mark(self.stage, now, delay)
        self._updated = len(self.marks) - 1

    def _end_evaluation(self, now: float, delay: float, began: int) -> None:
        self._rename(began, None, _OF_A_LOOP, _EVALUATION)

    def _rename(self, begin: int, end: int | None, before: Sequence[int], after: int) -> None:
        self.marks[begin:end] = [
            (after, *mark[1:]) if mark[0] in before else mark for mark in self.marks[begin:end]
        ]

    def count_delays_from(self, delay: float) -> None:
        """Marks are as if all had been made at that delay: it is another thread's from now on."""
        self._passes = 0
        self.marks[:] = [
            (stage, now, delay, loader, event) for stage, now, _, loader, event in self.marks
        ]

    def end(self, now: float, delay: float) -> tuple[list[float], list[Mark]]:
        """The step is over: its row, in which what others know is 0, and its marks; the next one begins."""
        self._add_mark(_BETWEEN, now, delay)
        marks = self.marks
        self.marks, self._passes, self._updated = [marks[-1]], 0, 0
        self._before.clear()
        return _row(marks), marks

    def begin(self, now: float, delay: float, _: Any = None) -> None:
        """What came since the last one's end belongs to no step."""
        self.marks = [(NO_STEP, *self.marks[0][1:])]
        self._passes, self._updated = 0, 0
        self._before.clear()
        self._add_mark(_BETWEEN, now, delay)


def _row(marks: Sequence[Mark]) -> list[float]:
    if marks[0][0] == NO_STEP:
        marks = marks[1:]
    row = [0.0] * FIELDS
    row[BEGAN], row[ENDED], row[DELAY] = marks[0][1], marks[-1][1], marks[-1][2] - marks[0][2]
    for mark, following in itertools.pairwise(marks):
        stage, seconds = mark[0], following[1] - mark[1]
        row[stage] += seconds
        if stage == _INPUT:
            row[INPUTS + min(mark[3], LOADERS - 1)] += seconds
            row[INPUT_DELAY] += following[2] - mark[2]
        elif stage == _EXCHANGE:
            row[EXCHANGE_DELAY] += following[2] - mark[2]
    return row


_ACTS: Mapping[ThreadEvent, Callable[[StepUnderWay, float, float, Any], None]] = {
    _E.READ_BEGINS: StepUnderWay._begin_read,
    _E.COPY_BEGINS: StepUnderWay._begin_copy,
    _E.MODEL_CALLED: StepUnderWay._begin_forward,
    _E.BACKWARD_BEGINS: StepUnderWay._begin_pass,
    _E.GRADIENT_READY: StepUnderWay._end_gradients,
    _E.BACKWARD_ENDED: StepUnderWay._end_pass,
    _E.UPDATED_BESIDE: StepUnderWay._end_update_beside,
    _E.UPDATED_BEFORE: StepUnderWay._end_update,
    _E.LOOP_WAS_EVALUATION: StepUnderWay._end_evaluation,
    _E.STEP_BEGINS: StepUnderWay.begin,
}
"""Events that do more than begin a stage, or begin it in whichever stage they come."""
HEEDED = [
    event is _E.STEP_ENDED
    or any(event in known for known in (STAGES, _ACTS, INTERRUPTIONS, RETURNS))
    for event in (ThreadEvent(1), *ThreadEvent)
]
"""Whether a profile's stamps are to know of an event, by its number: loops are the ledger's."""


def _summed_up(marks: Sequence[Mark]) -> list[Mark]:
    """A mark for each stage and loader, which takes as long as all of them did, and the last; the order is lost."""
    took: dict[tuple[int, int], tuple[float, float]] = {}
    for (stage, since, delay, loader, _), (_, now, later, _, _) in itertools.pairwise(marks):
        seconds, delays = took.get((stage, loader), (0.0, 0.0))
        took[stage, loader] = seconds + now - since, delays + later - delay
    _, at, delayed, _, _ = marks[0]
    found: list[Mark] = []
    for (stage, loader), (seconds, delays) in took.items():
        found.append((stage, at, delayed, loader, None))
        at, delayed = at + seconds, delayed + delays
    return [*found, marks[-1]]
