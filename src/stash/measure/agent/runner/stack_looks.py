"""Where the training thread is: its stack, looked at every few milliseconds by a thread of the same process.

A look costs the training thread the interpreter for a tenth of a millisecond, which is measured, row by row. A place
is the innermost line of the script's own code, or of what it imports from beside it; Python's library and installed
packages are what that line waits for. What the line is doing for the job, its row, is not known here.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from operator import attrgetter
from types import FrameType
from typing import Any, NamedTuple

from stash.core.ledger_rows import (
    BACKWARD,
    COLLECTIVE,
    EPOCH_START,
    EVALUATION,
    FORWARD,
    IN_STEPS,
    INPUT,
    LOOP,
    OPTIMIZER,
)
from stash.measure.agent import private
from stash.measure.agent.runner.thread_stack import (
    CalledModules,
    ScriptCall,
    ScriptLine,
    ThreadStack,
    path_from_here,
    place_of,
)
from stash.measure.linux import run_queue

_PERIOD, _LONG_PERIOD = 0.005, 0.02
"""Seconds between looks: until there are ``_MANY_LOOKS``, and then."""
_MANY_LOOKS = 100
_LONGEST = 0.25
"""Seconds at most that one look stands for: a thread that held the interpreter, or a machine that stood still."""
_SWITCH = 0.00005
"""Seconds for which a thread may hold the interpreter while another waits for it: lines that hold it for less, in a
library of Python alone, were never seen."""
_WORKING = 0.01
"""Of the process's seconds on a core, from which another thread of the script's works; those of progress bars wait."""
_OF_LOOPS = (EPOCH_START, INPUT, FORWARD)
"""Rows that a loop over a loader makes."""
_FEWEST_LOOKS = 10
"""At a row, from which they tell how its time is shared out."""
_MOST_PLACES = 4
"""Of a row."""
_FEWEST_SECONDS = 0.02


class _Look(NamedTuple):
    """What one look saw of the training thread."""

    row: str
    seen_in: str
    """The row of the ledger meanwhile, of which ``row`` may be a part that is another's."""
    own: tuple[tuple[ScriptCall, int], ...]
    """The script's functions under way and at which line each was, the innermost first; never empty."""
    inside: str
    """The function of a library that the innermost line waits for; empty where there is none."""
    models: int
    """So many of ``own`` are a model's; those behind them called it. 0 where no model is under way."""
    is_in_model: bool = False
    """A model is under way, whose functions may all be a library's."""
    prepares: bool = False
    """It works on a batch that the model has still to get."""
    is_frozen: bool = False
    """The model that it calls has parameters, of which none trains."""

    @property
    def place(self) -> ScriptLine:
        (file, _), line = self.own[0]
        return file, line


class Places:
    """Looks at one ``thread``; ``row_now()`` is the row that it is in.

    The thread that looks adds to these tables while the training thread reads them: what iterates, does so over a copy.
    """

    def __init__(self, thread: int, row_now: Callable[[], str]) -> None:
        self._thread, self._row_now = thread, row_now
        self._looks: dict[_Look, float] = {}
        """Seconds that each stands for."""
        self._model_lines: dict[ScriptCall, int] = {}
        """Of functions from which a model is called, through others too, the first line that does."""
        self._backward_lines: dict[ScriptCall, int] = {}
        """Of those from which gradients are computed, the last line that does."""
        self._switch_before: float | None = None
        """The script's own switch interval while its thread is looked at; ``None``: it is not."""
        self._turn = _SWITCH
        """The interval between looks."""
        _there.add(self)
        self.before_update = 0.0
        """Seconds of rows ``optimizer`` in which none worked: the script's own lines after the backward pass."""
        self.in_hooks = 0.0
        """Seconds of rows ``backward`` in functions of the script's own that the engine calls for gradients."""
        self._seen: dict[str, list[float]] = defaultdict(list)
        """By row, what each look at it stands for."""
        self.held: dict[str, float] = defaultdict(float)
        """By row, seconds for which looks held the interpreter, which the thread had to wait for."""
        self._mark: tuple[dict[_Look, float], dict[str, int], dict[str, float]] = ({}, {}, {})
        """Looks, how many at each row, and what those held, when the latest loop began."""
        self._called = CalledModules()
        self.why_none = ""

    def start(self) -> None:
        """Begin to look, on the training thread; a second call goes on."""
        if self._switch_before is None:
            self._switch_before = sys.getswitchinterval()
            self.shorten_turns()
            threading.Thread(target=self._sample_on, daemon=True, name="stash-places").start()

    def shorten_turns(self) -> None:
        """Have the interpreter change hands sooner, unless that would change the turns of a thread that works."""
        before = self._switch_before
        if before is None:
            return
        seconds, enough = run_queue.seconds_of_threads(), _WORKING * time.thread_time()
        works = any(seconds.get(thread, enough) >= enough for thread in run_queue.list_others())
        self._turn = before if works else min(_SWITCH, before)
        if works and sys.getswitchinterval() > _SWITCH:
            return  # the script's own
        sys.setswitchinterval(self._turn)

    def stop(self) -> None:
        before, self._switch_before = self._switch_before, None
        if before is not None and sys.getswitchinterval() <= _SWITCH:
            sys.setswitchinterval(before)

    def clear(self, keep: tuple[str, ...]) -> None:
        """Forget what was seen but for these rows; the thread that looks may add to it meanwhile."""
        seen = self._looks.copy().items()
        self._looks = {look: seconds for look, seconds in seen if look.row in keep}
        self._seen.clear()
        self.mark_loop()
        self.before_update = self.in_hooks = 0.0

    def mark_loop(self) -> None:
        """A loop begins; what for is not known."""
        counts = {row: len(seen) for row, seen in self._seen.copy().items()}
        self._mark = self._looks.copy(), counts, self.held.copy()

    def move_to_evaluation(self) -> None:
        """What the latest loop was for, whose passes could have been training's."""
        looks, counts, held = self._mark
        for row in _OF_LOOPS:
            seen, before = self._seen[row], counts.get(row, 0)
            self._seen[EVALUATION] += seen[before:]
            del seen[before:]
            since = self.held[row] - held.get(row, 0.0)
            self.held[row] -= since
            self.held[EVALUATION] += since
        for look, seconds in self._looks.copy().items():
            earlier = looks.get(look, 0.0)
            if look.seen_in in _OF_LOOPS and seconds > earlier:
                self._looks[look] = earlier
                moved = look._replace(row=EVALUATION, seen_in=EVALUATION)
                self._add_look(moved, seconds - earlier)

    def fit(self, timed: Mapping[str, float]) -> None:
        """Let looks at a row of every step stand for all of its ``timed`` seconds, and for no more.

        A look waits until the training thread lets go of the interpreter, which some operations do far more often
        than others: of a script with 0.3 ms of collating in a step of 12, a third of all looks saw that.
        """
        factors: dict[str, float] = {}
        for row, seen in self._seen.copy().items():
            if row in IN_STEPS and timed.get(row, 0.0) > 0 and len(seen) >= _FEWEST_LOOKS:
                factors[row] = timed[row] / sum(seen)
        for look in self._looks.copy():
            self._looks[look] *= factors.get(look.seen_in, 1.0)
        self.before_update *= factors.get(OPTIMIZER, 1.0)
        self.in_hooks *= factors.get(BACKWARD, 1.0)

    def _sample_on(self) -> None:
        last = time.perf_counter()
        while True:
            taken = sum(map(len, [*self._seen.values()]))
            time.sleep(_PERIOD if taken < _MANY_LOOKS else _LONG_PERIOD)
            now, before = time.perf_counter(), self._switch_before
            if before is None:  # what was seen is being read
                return
            is_short = sys.getswitchinterval() <= _SWITCH
            if is_short:  # taking turns within a look costs the thread more than the look
                sys.setswitchinterval(before)
            try:
                row = self._look(self._row_now(), min(now - last, _LONGEST))
            except Exception as error:  # of an interpreter that shows no frames
                kind = type(error).__name__
                self.why_none = f"stacks of the training thread could not be read ({kind})"
                return
            if is_short:
                sys.setswitchinterval(self._turn)
                if self._switch_before is None:  # it was to stop meanwhile
                    sys.setswitchinterval(before)
            last = now
            self.held[row] += time.perf_counter() - now

    def _look(self, row: str, seconds: float) -> str:
        """Look at the thread in a row; the value is the row that this counts for.

        If it went on meanwhile, its outer functions are of another moment than the inner ones, and count for nothing.
        """
        frame = private.stack_of(self._thread)
        if frame is None:
            return row
        instruction, stack = frame.f_lasti, ThreadStack.walk(frame)
        is_still_there = private.stack_of(self._thread) is frame and frame.f_lasti == instruction
        return self._add_stack(row, stack, seconds) if is_still_there else row

    def add(self, row: str, frame: FrameType | None, seconds: float) -> None:
        """The thread was seen in ``frame`` for ``seconds`` of a row."""
        self._add_stack(row, ThreadStack.walk(frame), seconds)

    def _add_stack(self, row: str, stack: ThreadStack, seconds: float) -> str:
        models, trains = self._find_model(stack.calls)
        if row == OPTIMIZER and models >= 0 and not stack.updates:
            row = FORWARD  # of another pass, whose gradients are added up
        self._seen[row].append(seconds)
        own, seen_in = stack.own, row
        if not own or (stack.is_of_library and row == COLLECTIVE):
            return seen_in  # the last is the model's own exchange, as of shards
        if row == OPTIMIZER and not stack.updates:
            row = LOOP
            self.before_update += seconds
        elif row == BACKWARD and stack.is_hooked:
            row = LOOP
            self.in_hooks += seconds
        for call, line in own[models:] if models >= 0 else ():
            self._model_lines[call] = min(line, self._model_lines.get(call, line))
        for call, line in own if row == BACKWARD else ():
            self._backward_lines[call] = max(line, self._backward_lines.get(call, line))
        look = _Look(
            row,
            seen_in,
            tuple(own),
            stack.inside,
            max(0, models),
            is_in_model=models >= 0,
            is_frozen=trains is False,
        )
        self._add_look(look, seconds)
        return seen_in

    def _find_model(self, calls: list[tuple[int, FrameType]]) -> tuple[int, bool | None]:
        """So many of the script's functions are the model's that the outermost call is of, and whether it trains.

        -1 where none of the modules called has parameters.
        """
        for depth, frame in reversed(calls):
            trains = self._called.is_trained(frame.f_locals.get("self"))
            if trains is not None:
                return depth, trains
        return -1, None

    def _add_look(self, look: _Look, seconds: float) -> None:
        self._looks[look] = self._looks.get(look, 0.0) + seconds

    def move_to_loop(self, known: float | None = None) -> float:
        """Seconds of the rows ``forward`` before the script calls its model; now of ``loop``.

        Where it is ``known`` how many those are, looks stand for so many.
        """
        seen = self._move_before_the_model()
        if known is not None and seen > 0:
            for look in self._looks.copy():
                if look.row == LOOP and look.prepares:
                    self._looks[look] *= known / seen
        return seen

    def _move_before_the_model(self) -> float:
        known = self._relabel(FORWARD, self._is_before_the_model, row=LOOP, prepares=True)
        asked = self._find_asking_lines()

        def hands_out(look: _Look) -> bool:
            """Whether it works on a batch below a line that ``asked`` for it, as generators around a loader do."""
            return not look.is_in_model and not asked.isdisjoint(look.own[1:])

        return known + self._relabel(FORWARD, hands_out, row=LOOP, prepares=True)

    def _find_asking_lines(self) -> set[tuple[ScriptCall, int]]:
        """Of the innermost function that all of a step was seen in, the lines that lead to the loader.

        Those that lead to gradients as well run whole steps, like ``trainer.train()``.
        """
        looks = self._looks.copy()
        asks = [look.own for look in looks if look.row == INPUT]
        stacks = [{call for call, _ in look.own} for look in looks if look.row in IN_STEPS]
        shared = set.intersection(*stacks) if asks else set()
        loop = next((call for own in asks[:1] for call, _ in own if call in shared), None)
        passes = {known for look in looks if look.row == BACKWARD for known in look.own}
        return {known for own in asks for known in own if known[0] == loop} - passes

    def move_second_passes(self) -> None:
        """Looks at a model in the row ``loop`` were of another pass over a step's batch, as of a second optimizer."""
        moved = self._relabel(LOOP, attrgetter("is_in_model"), row=FORWARD)
        self._seen[FORWARD].append(moved)
        self._seen[LOOP].append(-moved)

    def move_to_forward(self, is_known: bool = False) -> float:
        """Seconds of the rows ``loop`` from where the script calls its model to its gradients; now of ``forward``.

        Where it ``is_known`` when that was, those of models that were called before it without gradients.
        """
        self._relabel(LOOP, self._is_before_the_model, prepares=True)
        is_moved = attrgetter("is_in_model") if is_known else self._is_of_a_pass
        return self._relabel(LOOP, is_moved, row=FORWARD)

    def _is_before_the_model(self, look: _Look) -> bool:
        known = self._find_model_caller(look)
        return known is not None and not look.is_in_model and known[1] < self._model_lines[known[0]]

    def _is_of_a_pass(self, look: _Look) -> bool:
        known = self._find_model_caller(look)
        if known is None:
            return False
        call, line = known
        return self._model_lines[call] <= line <= self._backward_lines.get(call, line)

    def _find_model_caller(self, look: _Look) -> tuple[ScriptCall, int] | None:
        """The innermost such function and the line it was at; ``None`` where there is none."""
        return next((known for known in look.own if known[0] in self._model_lines), None)

    def _relabel(self, source: str, is_moved: Callable[[_Look], bool], **changes: Any) -> float:
        moved = 0.0
        for look in self._looks.copy():
            if look.row == source and is_moved(look):
                seconds = self._looks.pop(look)
                self._add_look(look._replace(**changes), seconds)
                moved += seconds
        return moved

    def rows(self) -> list[dict[str, Any]]:
        """Fields of ``records.profile.LedgerPlace``, of each row the longest first."""
        by_place: dict[tuple[str, ScriptLine], dict[_Look, float]] = defaultdict(dict)
        for look, seconds in self._looks.copy().items():
            by_place[look.row, look.place][look] = seconds
        by_row: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for (row, line), looks in by_place.items():
            inside = Counter[str]()
            for look, part in looks.items():
                inside[look.inside] += part  # type: ignore[assignment]
            longest = max(looks, key=lambda look: looks[look])
            place = {
                "row": row,
                **place_of(line),
                "inside": inside.most_common(1)[0][0],
                "seconds": sum(looks.values()),
                "caller": self._describe_caller(longest),
                "prepares": longest.prepares,
                "is_frozen": longest.is_frozen,
            }
            if place["seconds"] >= _FEWEST_SECONDS:
                by_row[row].append(place)
        return [
            place
            for _, places in sorted(by_row.items())
            for place in sorted(places, key=lambda place: -place["seconds"])[:_MOST_PLACES]
        ]

    def _describe_caller(self, look: _Look) -> str:
        """Where the function that calls the model called what leads to the line; empty where it is its own line."""
        known = self._find_model_caller(look)
        if known is None:
            return ""
        (file, _), line = known
        return "" if (file, line) == look.place else f"{path_from_here(file)}:{line}"


_there: weakref.WeakSet[Places] = weakref.WeakSet()
"""Of this process: a fork inherits the switch interval, and not the thread that looks."""


def _stop_in_child() -> None:
    for places in [*_there]:
        places.stop()


os.register_at_fork(after_in_child=_stop_in_child)
