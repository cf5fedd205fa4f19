"""The stages of a step, as events of its thread make them: events in, marks of stages, a row at the end. Pure.

A step is the list of its marks: which stage began at which moment. What is learned later renames marks: that a loop
was an evaluation, that a gradient was not the last one. A row is the difference of neighbouring marks, so stages add
up to their step exactly; on a device by the events in its queue that stand beside the marks (``device_stages``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
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
    _E.COMPILATION_BEGINS: StepStage.COMPILATION,
}
"""The same of a watched run, which has no ledger beside it."""


class StepUnderWay:
    """A step as far as it has come, and the next one after it, by a table of ``stages``."""

    __slots__ = ("_before", "_passes", "_record", "_updated", "handlers", "marks")

    def __init__(self, first: Mark, stages: Stages = STAGES) -> None:
        self.marks = [first]
        self._record: Callable[[], Any] | None = None
        self._before: list[int] = []
        """Stages that were interrupted and are gone back to, the innermost last."""
        self._passes = 0
        """Backward passes within each other."""
        self.handlers: list[Callable[[float, float, Any], None]] = [
            partial(act, self, stage)
            for act, stage in (
                _choose_act(event, stages) for event in (ThreadEvent(1), *ThreadEvent)
            )
        ]
        """What each event does to it, by the event's number: of the moment, the thread's delay by then, and what
        comes with the event."""
        self._updated = 0
        """So many marks came before the end of the last update that another optimizer made."""

    def follow(self, record: Callable[[], Any]) -> None:
        """From now on ``record()`` puts an event into a device's queue for each mark."""
        self._record = record
        del self.marks[:-1]

    @property
    def stage(self) -> int:
        return self.marks[-1][0]

    def _ignore(self, stage: int, now: float, delay: float, _: Any) -> None:
        """The stage goes on."""

    def _begin(self, stage: int, now: float, delay: float, loader: Any = 0) -> None:
        """A stage begins; ``loader``: of a read, the number of the one that is read."""
        record, marks = self._record, self.marks
        if record is not None:
            marks.append((stage, now, delay, loader, record()))
            return
        marks.append((stage, now, delay, loader, None))
        if len(marks) > _MOST_MARKS:
            marks[:] = _summed_up(marks)
            self._updated = 0

    def _go_to(self, stage: int, now: float, delay: float, _: Any) -> None:
        """A stage begins, or goes on."""
        if stage != self.marks[-1][0]:
            self._begin(stage, now, delay)

    def _interrupt(self, stage: int, now: float, delay: float, _: Any) -> None:
        """… for a while; without one of its own what it is in goes on."""
        self._before.append(self.marks[-1][0])
        if stage != NO_STEP:
            self._go_to(stage, now, delay, None)

    def _return(self, stage: int, now: float, delay: float, _: Any) -> None:
        if self._before:
            self._go_to(self._before.pop(), now, delay, None)

    def _begin_copy(self, stage: int, now: float, delay: float, _: Any) -> None:
        """One within a wait is a part of that."""
        self._interrupt(stage if self.stage in _BEFORE_PASSES else NO_STEP, now, delay, None)

    def _begin_clearing(self, stage: int, now: float, delay: float, _: Any) -> None:
        """Of gradients; a device has next to nothing to do for it, and its queue gets no boundary."""
        is_own = self.stage in (_BETWEEN, _FORWARD) and self._record is None
        self._interrupt(stage if is_own else NO_STEP, now, delay, None)

    def _begin_pass(self, stage: int, now: float, delay: float, _: Any) -> None:
        """One inside another (checkpointing) is part of it."""
        self._passes += 1
        if self._passes == 1:
            self._begin(stage, now, delay)

    def _end_pass(self, stage: int, now: float, delay: float, _: Any) -> None:
        self._passes = max(0, self._passes - 1)
        if self._passes == 0:
            self._begin(stage, now, delay)

    def _end_gradients(self, stage: int, now: float, delay: float, _: Any) -> None:
        """If an exchange is under way already, a later one than was taken for the last did: there was no wait."""
        if self.stage == stage:
            self.marks[-1] = (_BACKWARD, *self.marks[-1][1:])
        self._begin(stage, now, delay)

    def _begin_forward(self, stage: int, now: float, delay: float, _: Any) -> None:
        """What came before it in the step was no optimizer's, but for its update."""
        if self.stage == _OPTIMIZER:
            self._rename(self._updated, None, (_OPTIMIZER,), _BETWEEN)
        if self.stage == _BETWEEN:
            self._begin(stage, now, delay)

    def _end_update_beside(self, stage: int, now: float, delay: float, _: Any) -> None:
        """… which is no pause before the step."""
        is_between, last = self.stage == _BETWEEN, len(self.marks)
        self._end_update(stage, now, delay, None)
        if is_between:
            self._rename(0, last, (_BETWEEN,), _OPTIMIZER)

    def _end_update(self, stage: int, now: float, delay: float, _: Any) -> None:
        self._begin(self.stage, now, delay)
        self._updated = len(self.marks) - 1

    def _end_evaluation(self, stage: int, now: float, delay: float, began: int) -> None:
        self._rename(began, None, _OF_A_LOOP, stage)

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

    def end(self, now: float, delay: float) -> list[Mark]:
        """The step is over: its marks; the next one begins."""
        self._begin(_BETWEEN, now, delay)
        marks = self.marks
        self._start_from(marks[-1])
        return marks

    def begin(self, stage: int, now: float, delay: float, _: Any = None) -> None:
        """What came since the last one's end belongs to no step."""
        self._start_from((NO_STEP, *self.marks[0][1:]))
        self._begin(stage, now, delay)

    def _start_from(self, mark: Mark) -> None:
        self.marks, self._passes, self._updated = [mark], 0, 0
        self._before.clear()


def fold_marks(marks: Sequence[Mark]) -> list[float]:
    """The row of a step, in which what others know is 0: stages are the differences of neighbouring marks.

    A plain loop, as it runs at every step that is watched.
    """
    is_after_pause = marks[0][0] == NO_STEP
    stage, since, delayed, loader, _ = marks[is_after_pause]
    row = [0.0] * FIELDS
    row[BEGAN], row[ENDED], row[DELAY] = since, marks[-1][1], marks[-1][2] - delayed
    for following, now, delay, next_loader, _ in marks[1 + is_after_pause :]:
        row[stage] += now - since
        if stage == _INPUT:
            row[INPUTS + min(loader, LOADERS - 1)] += now - since
            row[INPUT_DELAY] += delay - delayed
        elif stage == _EXCHANGE:
            row[EXCHANGE_DELAY] += delay - delayed
        stage, since, delayed, loader = following, now, delay, next_loader
    return row


Act: TypeAlias = Callable[[StepUnderWay, int, float, float, Any], None]
"""Of the stage that begins, the moment, the thread's delay by then, and what comes with an event."""
_ACTS: Mapping[ThreadEvent, tuple[Act, int]] = {
    _E.READ_BEGINS: (StepUnderWay._begin, _INPUT),
    _E.COPY_BEGINS: (StepUnderWay._begin_copy, _TRANSFER),
    _E.CLEARING_BEGINS: (StepUnderWay._begin_clearing, _OPTIMIZER),
    _E.MODEL_CALLED: (StepUnderWay._begin_forward, _FORWARD),
    _E.BACKWARD_BEGINS: (StepUnderWay._begin_pass, _BACKWARD),
    _E.GRADIENT_READY: (StepUnderWay._end_gradients, _EXCHANGE),
    _E.BACKWARD_ENDED: (StepUnderWay._end_pass, _OPTIMIZER),
    _E.UPDATED_BESIDE: (StepUnderWay._end_update_beside, NO_STEP),
    _E.UPDATED_BEFORE: (StepUnderWay._end_update, NO_STEP),
    _E.LOOP_WAS_EVALUATION: (StepUnderWay._end_evaluation, _EVALUATION),
    _E.STEP_BEGINS: (StepUnderWay.begin, _BETWEEN),
}
"""Events that do more than begin a stage, or begin it in whichever stage they come."""
_WITHOUT_DELAY = frozenset(
    {
        _E.REPLAYED,
        _E.COPY_BEGINS,
        _E.COPY_ENDED,
        _E.CLEARING_BEGINS,
        _E.CLEARING_ENDED,
        _E.MODEL_CALLED,
        _E.BACKWARD_BEGINS,
        _E.BACKWARD_ENDED,
    }
)
DELAY_READ = [event not in _WITHOUT_DELAY for event in (ThreadEvent(1), *ThreadEvent)]
"""Whether the thread's delay is read at an event, by its number: else an earlier reading will do, as the event bounds
no stage whose delay a row has; but for the end of a pass whose last gradients are followed."""
HEEDED = [
    event is _E.STEP_ENDED
    or any(event in known for known in (STAGES, _ACTS, INTERRUPTIONS, RETURNS))
    for event in (ThreadEvent(1), *ThreadEvent)
]
"""Whether a profile's stamps are to know of an event, by its number: loops are the ledger's."""


def _choose_act(event: ThreadEvent, stages: Stages) -> tuple[Act, int]:
    if event in _ACTS:
        return _ACTS[event]
    stage = int(stages.get(event, NO_STEP))
    if event in RETURNS:
        return StepUnderWay._return, stage
    if event in INTERRUPTIONS:
        return StepUnderWay._interrupt, stage
    return StepUnderWay._ignore if stage == NO_STEP else StepUnderWay._go_to, stage


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
