"""Keeps a rank's ledger from its process's start until blocks begin: events, their moments, collections, places."""

from __future__ import annotations

import gc
import math
import os
import sys
from collections.abc import Callable, Mapping
from threading import get_ident
from typing import Any, ClassVar, NamedTuple, TypeAlias

from stash.core.ledger_rows import (
    BACKWARD,
    CHECKPOINT,
    EPOCH_START,
    EVALUATION,
    FORWARD,
    INPUT,
    INTERPRETER,
    LOOP,
    OPTIMIZER,
    OTHER,
)
from stash.measure.agent.runner.interpreter_wait import InterpreterClock
from stash.measure.agent.runner.run_ledger import ROW_EVENTS, RunLedger
from stash.measure.agent.runner.stack_looks import Places
from stash.measure.agent.thread_events import ThreadEvent
from stash.measure.linux.processes import seconds_since_start
from stash.measure.protocol.messages import LedgerKept

_SHARE = 0.3
"""Of the budget, at most, that evaluations may take before blocks begin; after that they get one batch each."""

_MOST_OBJECTS = 1_000_000
"""Of which looking for garbage among them takes half a second."""

_fsync = os.fsync
_KEPT = (
    ThreadEvent.ITERATOR_ASKED,
    ThreadEvent.BATCH_GIVEN,
    ThreadEvent.STEPPED,
    ThreadEvent.SAVE_BEGINS,
    ThreadEvent.COMPILATION_BEGINS,
)
"""Events after which there is more to do than to account for them."""
Hearer: TypeAlias = Callable[[ThreadEvent, float, Any], None]


class _TimedSteps(NamedTuple):
    """Where the steps begin that stand for all later ones."""

    began: float
    first: int
    """Steps before them."""
    before: dict[str, float]
    """Seconds of rows by then."""
    held: dict[str, float]
    """Those of looks."""
    interpreter: InterpreterClock | None


class ModelCalls:
    """Tells of the first call of a model after each batch, and when it was, on whichever thread calls it.

    PyTorch's hook for all modules is there from the batch to that call only: others cost nothing.
    """

    def __init__(self, tell: Callable[[float], None], now: Callable[[], float]) -> None:
        self._tell, self._now = tell, now
        self.awaited = 0
        """So many calls were to be told of."""
        self._unused = 0
        """So many of them came after some without gradients, which were none of a step's."""
        self._is_unused = False
        self._handle: Any = None
        self._with_gradients = False
        self._has_gradients = sys.modules["torch"].is_grad_enabled
        self._register = sys.modules["torch.nn.modules.module"].register_module_forward_pre_hook

    def await_next(self, with_gradients: bool = False) -> None:
        """``with_gradients``: calls without them are none of a step's."""
        if self._handle is None:
            self.awaited += 1
            self._with_gradients, self._is_unused = with_gradients, False
            self._handle = self._register(self._note_call)

    @property
    def are_seldom_unused(self) -> bool:
        """Whether few steps have such calls before theirs: evaluations and rollouts, and no part of each step."""
        return 0 < 2 * self._unused < self.awaited

    def stop(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.remove()

    def _note_call(self, module: Any, inputs: Any) -> None:
        """Of modules without parameters, transforms of batches are some."""
        now = self._now()
        if self._with_gradients and not self._has_gradients():
            if not self._is_unused and next(module.parameters(), None) is not None:
                self._is_unused = True
                self._unused += 1
            return
        if self._handle is not None and next(module.parameters(), None) is not None:
            self.stop()
            self._tell(now)


class NoLedger:
    """Stands in for what keeps account of a training thread's seconds."""

    may_evaluate = False
    """Whether an evaluation takes as long as the script has it take."""
    sees_epochs = False
    """Whether the wait for an epoch's first batch is accounted for, and no step's."""

    def take_saving_seconds(self) -> float:
        """Seconds that saving took since the last call."""
        return 0.0

    def discount(self, seconds: float) -> None:
        """So many seconds of what the training thread is doing were Stash's own work."""

    def stop(self) -> None:
        """Keep account of nothing more."""


NO_LEDGER = NoLedger()


class SavingClock(NoLedger):
    """Times nothing but what saves, while blocks are measured: no step's either."""

    def __init__(self) -> None:
        self._saved = 0.0
        self._under_way: list[float] = []
        """When saves began, those within others last."""

    def handle(self, event: ThreadEvent, now: float, about: object = None) -> None:
        """A save begins or ends."""
        if event is ThreadEvent.SAVE_BEGINS:
            self._under_way.append(now)
        elif self._under_way:
            began = self._under_way.pop()
            self._saved += 0.0 if self._under_way else now - began

    def take_saving_seconds(self) -> float:
        saved, self._saved = self._saved, 0.0
        return saved


class LedgerKeeper(NoLedger):
    """Of the thread that ``stamps`` follow; ``budget``: seconds."""

    sees_epochs = True
    _hooked: ClassVar[LedgerKeeper | None] = None
    """The one of this process that notices collections and flushes."""

    def __init__(self, stamps: Any, budget: float) -> None:
        self._stamps = stamps
        self._places = Places(get_ident(), lambda: self._ledger.row_of_look)
        self._ledger = RunLedger(
            stamps.now() - seconds_since_start(), self._places.move_to_evaluation
        )
        self._most_evaluation = _SHARE * budget
        self._timing: _TimedSteps | None = None
        self._model_calls: ModelCalls | None = None
        """Followed in the timed steps of a job without devices that compiles nothing."""
        self._compiles = False
        self._collects = False
        self._saved = 0.0
        self._saved_at = -1
        """After how many steps something was saved last."""

    @property
    def may_evaluate(self) -> bool:  # type: ignore[override]
        return self._ledger.seconds[EVALUATION] < self._most_evaluation

    @property
    def first_start(self) -> float:
        """Seconds that the latest epoch took to start; 0 if none did."""
        seen = self._ledger.occurrences[EPOCH_START]
        return seen[-1][1] if seen else 0.0

    @property
    def steps_of_epoch(self) -> int:
        """Steps since the last epoch's start."""
        seen = self._ledger.occurrences[EPOCH_START]
        return self._ledger.steps - (seen[-1][0] if seen else 0)

    def list_hearers(self, event: ThreadEvent) -> tuple[Hearer, ...]:
        """Who is told of such an event: most are only the account's."""
        if event in _KEPT:
            return (self.handle,)
        return (self._ledger.handle,) * (event in ROW_EVENTS)

    def handle(self, event: ThreadEvent, now: float, about: object = None) -> None:
        """The next event of the training thread; ``about``: the loader that it has to do with."""
        if LedgerKeeper._hooked is not self:
            self._hook()
        ledger = self._ledger
        if event is ThreadEvent.SAVE_BEGINS:
            self._saved_at = ledger.steps
        ledger.handle(event, now, about)
        if event is ThreadEvent.BATCH_GIVEN:
            if self._model_calls is not None:
                self._model_calls.await_next()
        elif event is ThreadEvent.STEPPED:
            if self._model_calls is not None and not ledger.sees_loaders:
                self._model_calls.await_next(with_gradients=True)
        elif event is ThreadEvent.ITERATOR_ASKED:
            self._places.mark_loop()
            self._places.start()
        elif event is ThreadEvent.COMPILATION_BEGINS:  # which would compile a hook as well
            self._compiles = True
            self._follow_no_models()

    def _follow_no_models(self) -> None:
        if self._model_calls is not None:
            self._model_calls.stop()
            self._model_calls = None

    def take_saving_seconds(self) -> float:
        before, self._saved = self._saved, self._ledger.seconds[CHECKPOINT]
        return self._saved - before

    def discount(self, seconds: float) -> None:
        self._ledger.discount(seconds)

    def _note_model(self, called: float) -> None:
        if self._stamps.is_this_thread:
            self._ledger.handle(ThreadEvent.MODEL_CALLED, called)
            self.discount(self._stamps.now() - called)

    def _tell(self, event: ThreadEvent) -> None:
        """Something happened on the calling thread that only a ledger is told of."""
        if self._stamps.is_this_thread:
            self.handle(event, self._stamps.now())

    def _flush(self, descriptor: Any) -> None:
        """``os.fsync``, which is a part of saving where the same step has saved something, and no log's."""
        if self._saved_at != self._ledger.steps:
            _fsync(descriptor)
            return
        self._tell(ThreadEvent.SAVE_BEGINS)
        try:
            _fsync(descriptor)
        finally:
            self._tell(ThreadEvent.SAVE_ENDED)

    def collect_garbage_of_start(self) -> None:
        """Collect what imports left behind, which is no row of the script's.

        The collector looks at all objects once they have grown by a quarter. What Stash adds to those that a script
        imports would bring that forward into steps that stand for all later ones, which then are longer by 0.1 s and
        more; so would it in each worker that is forked until then.
        """
        if gc.isenabled() and len(gc.get_objects()) <= _MOST_OBJECTS:
            self._collects = True
            gc.collect()
            self._collects = False

    def _note_collection(self, phase: str, info: Any) -> None:
        if self._collects:
            return
        begins = phase == "start"
        self._tell(ThreadEvent.COLLECTION_BEGINS if begins else ThreadEvent.COLLECTION_ENDED)

    def begin_timing(self, has_devices: bool) -> None:
        """The steps from now on stand for all later ones; with devices, those tell when they begin to compute."""
        now = self._stamps.now()
        self._timing = _TimedSteps(
            now,
            self._ledger.steps,
            self._ledger.settle(now),
            self._places.held.copy(),
            InterpreterClock(),
        )
        self._places.clear(keep=(EPOCH_START,))
        self._places.start()
        self._places.shorten_turns()
        if not (has_devices or self._compiles):
            self._model_calls = ModelCalls(self._note_model, self._stamps.now)

    def end(
        self,
        rank: int,
        epoch_steps: int | None,
        device_between: float | None,
        is_alone: bool = False,
    ) -> LedgerKept:
        """The whole; ``device_between``: seconds of the timed steps that devices had nothing to do between them.

        ``is_alone``: the training thread waits neither for devices nor for other ranks.
        """
        now, places = self._stamps.now(), self._places
        timing = self._timing or _TimedSteps(now, 0, {}, {}, None)
        calls = self._model_calls
        self.stop()
        rows = {row["row"]: row for row in self._ledger.rows(now, timing.before)}
        _take_out_looks(rows, places.held, timing.held)
        self._name_own_code(rows, calls, device_between)
        found = places.rows()
        if is_alone and timing.interpreter is not None:
            found += _take_interpreter(rows, timing.interpreter)
        return LedgerKept(
            rank=rank,
            seconds=now - self._ledger.began,
            steps=self._ledger.steps,
            timed_steps=self._ledger.steps - timing.first,
            timed_seconds=now - timing.began,
            epoch_steps=epoch_steps,
            rows=list(rows.values()),
            places=found,
            unplaced=places.why_none,
        )

    def _name_own_code(
        self,
        rows: dict[str, dict[str, Any]],
        calls: ModelCalls | None,
        device_between: float | None,
    ) -> None:
        """Move to ``loop`` what rows have of the script's own, by events, or by looks where those do not tell."""
        ledger, places = self._ledger, self._places
        sees_models = calls is not None and 2 * ledger.model_calls > calls.awaited > 0
        timed = {row: each["timed_seconds"] for row, each in rows.items()}
        loop, prepared = timed.get(LOOP, 0.0), ledger.prepared
        # looks before the model saw ``forward``
        seen = {LOOP: loop - prepared, FORWARD: timed.get(FORWARD, 0.0) + prepared}
        if ledger.second_passes > 0:
            places.move_second_passes()
        places.fit({**timed, **seen})
        if device_between is None:
            by_looks = places.move_to_loop(prepared if sees_models else None)
            _shift_seconds(rows, FORWARD, LOOP, 0.0 if sees_models else by_looks)
            most = math.inf if ledger.before_updates is None else ledger.before_updates
            _shift_seconds(rows, OPTIMIZER, LOOP, min(places.before_update, most))
            _shift_seconds(rows, BACKWARD, LOOP, places.in_hooks)
        else:
            _shift_seconds(rows, LOOP, FORWARD, loop - device_between)
        is_apart = sees_models and calls is not None and calls.are_seldom_unused
        if LOOP in rows and not (timed.get(INPUT) or is_apart):  # no batch was seen to begin a pass
            rows.setdefault(FORWARD, _empty_row(FORWARD))
            _shift_seconds(rows, LOOP, FORWARD, places.move_to_forward(is_known=sees_models))

    def _hook(self) -> None:
        """From the first loop on collections and flushes are noticed; what another keeper left behind goes."""
        if LedgerKeeper._hooked is not None:
            LedgerKeeper._hooked.stop()
        LedgerKeeper._hooked = self
        gc.callbacks.append(self._note_collection)
        os.fsync = self._flush  # type: ignore[assignment]

    def stop(self) -> None:
        """Keep account of nothing more."""
        self._places.stop()
        self._follow_no_models()
        if LedgerKeeper._hooked is self:
            LedgerKeeper._hooked = None
            gc.callbacks.remove(self._note_collection)
            os.fsync = _fsync


def _take_interpreter(
    rows: dict[str, dict[str, Any]], clock: InterpreterClock
) -> list[dict[str, Any]]:
    """Of what the steps compute, what they waited for the interpreter becomes a row; the value is its place."""
    computing = [rows[row] for row in (FORWARD, BACKWARD, OPTIMIZER) if row in rows]
    seconds = {row["row"]: row["timed_seconds"] for row in computing}
    whole = sum(seconds.values())
    wait = clock.find_wait(whole)
    if wait is None:
        return []
    rows[INTERPRETER] = _empty_row(INTERPRETER)
    for row, took in seconds.items():
        _shift_seconds(rows, row, INTERPRETER, wait.seconds * took / whole)
    return [{"row": INTERPRETER, **wait.place, "seconds": wait.seconds}] if wait.place else []


def _take_out_looks(
    rows: dict[str, dict[str, Any]], held: Mapping[str, float], before: Mapping[str, float]
) -> None:
    """What looks held the interpreter for is Stash's own work, of rows and of their occurrences."""
    for name, seconds in held.items():
        row = rows.get(name)
        if row is None or name == OTHER or seconds <= 0:
            continue
        whole = max(row["seconds"], sum(row["each"]), seconds)
        row["each"] = [took * (1 - seconds / whole) for took in row["each"]]
        _shift_seconds(rows, name, OTHER, seconds - before.get(name, 0.0))


def _empty_row(row: str) -> dict[str, Any]:
    return {"row": row, "seconds": 0.0, "timed_seconds": 0.0}


def _shift_seconds(
    rows: dict[str, dict[str, Any]], source: str, target: str, seconds: float
) -> None:
    """Move ``seconds`` of the timed steps from one row to another, and no more than there are."""
    if source not in rows or target not in rows:
        return
    seconds = min(max(0.0, seconds), rows[source]["timed_seconds"])
    for row, sign in ((source, -1), (target, 1)):
        rows[row]["seconds"] += sign * seconds
        rows[row]["timed_seconds"] += sign * seconds
