"""Where the training thread is: its stack, looked at every few milliseconds by a thread of the same process.

A look costs the training thread the interpreter for a tenth of a millisecond, which is measured, row by row. A place
is the innermost line of the script's own code, or of what it imports from beside it; Python's library and installed
packages are what that line waits for. What the line is doing for the job, its row, is not known here.
"""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TypeAlias

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
_MOST_LETTERS = 120
_OWN = Path(__file__).parents[3]
_INSTALLED = tuple(
    {sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_UPDATES = (
    os.path.join("torch", "optim", "optimizer.py"),
    os.path.join("torch", "nn", "utils", "clip_grad.py"),
    os.path.join("torch", "amp", "grad_scaler.py"),
    os.path.join("agent", "wraps", "steps.py"),
)
"""What a parameters' update is made of, between the backward pass and the step's end."""
_MODULES = os.path.join("torch", "nn", "modules", "module.py")
_CALLS = ("_call_impl", "_wrapped_call_impl", "__call__")
"""Functions of that by which a model is called; others are none of a pass: ``state_dict``, ``parameters``."""
_ENGINE = "_engine_run_backward"
"""PyTorch's function around the engine, which calls hooks of the script's own, and nothing else of it, directly."""


ScriptLine: TypeAlias = tuple[str, int]
"""A line of the script's own code: its file, and its number."""
_Call: TypeAlias = tuple[str, int]
"""A function of the script's own that is under way: its file, and its first line."""


class _Look(NamedTuple):
    """What one look saw of the training thread."""

    row: str
    seen_in: str
    """The row of the ledger meanwhile, of which ``row`` may be a part that is another's."""
    own: tuple[tuple[_Call, int], ...]
    """The script's functions under way and at which line each was, the innermost first; never empty."""
    inside: str
    """The function of a library that the innermost line waits for; empty where there is none."""
    models: int
    """So many of ``own`` are a model's; those behind them called it. 0 where no model is under way."""
    prepares: bool = False
    """It works on a batch that the model has still to get."""
    is_frozen: bool = False
    """The model that it calls has parameters, of which none trains."""

    @property
    def place(self) -> ScriptLine:
        (file, _), line = self.own[0]
        return file, line


class _Kind(NamedTuple):
    """What a function is to a look."""

    is_own: bool
    is_of_stash: bool
    is_update: bool
    """A part of a parameters' update."""
    is_call: bool
    """Of a module."""
    is_engine: bool


@cache
def _kind_of(path: str, name: str) -> _Kind:
    return _Kind(
        is_own=is_own(path),
        is_of_stash=path.startswith(str(_OWN)),
        is_update=path.endswith(_UPDATES),
        is_call=path.endswith(_MODULES) and name in _CALLS,
        is_engine=name == _ENGINE,
    )


@dataclass
class _Stack:
    """What there is to see of a stack; the thread under it waits meanwhile."""

    own: list[tuple[_Call, int]] = field(default_factory=list)
    inside: str = ""
    calls: list[tuple[int, FrameType]] = field(default_factory=list)
    """Of modules, the innermost first: how many of ``own`` came before it, and its frame."""
    updates: bool = False
    """A parameters' update is under way."""
    is_hooked: bool = False
    """The engine calls a function of the script's own, outside an update."""
    is_of_library: bool = False
    """The script's innermost line waits for a module or an update."""

    @classmethod
    def walk(cls, frame: FrameType | None) -> _Stack:
        """From the innermost ``frame`` on."""
        self, is_callee_own = cls(), False
        while frame is not None:
            code = frame.f_code
            kind = _kind_of(code.co_filename, code.co_name)
            self.updates = self.updates or kind.is_update
            if kind.is_own:
                self.own.append(((code.co_filename, code.co_firstlineno), _line_of(frame)))
            else:
                if kind.is_call:
                    self.calls.append((len(self.own), frame))
                if not self.own:
                    self.is_of_library = self.is_of_library or kind.is_call or kind.is_update
                    if not (self.inside or kind.is_of_stash):
                        self.inside = getattr(code, "co_qualname", code.co_name)
                elif is_callee_own and kind.is_engine and not self.updates:
                    self.is_hooked = True
            is_callee_own = kind.is_own
            frame = frame.f_back
        return self


class _CalledModules:
    """Whether modules train. Parameters without gradients may change all the same: averages of a model that trains do,
    and a critic's that is held while its generator steps; the least of them tells.
    """

    def __init__(self) -> None:
        self._trained: dict[int, bool | None] = {}
        """By a module's ``id``."""
        self._frozen: dict[int, tuple[Any, Any]] = {}
        """Of those that do not, a parameter and what it was when the module was first seen."""

    def is_trained(self, module: Any) -> bool | None:
        """``None`` of a module without parameters, as metrics and transforms are."""
        key = id(module)
        if key not in self._trained:
            parameters = list(module.parameters())
            self._trained[key] = (
                any(one.requires_grad for one in parameters) if parameters else None
            )
            if self._trained[key] is False:
                self._remember(key, parameters)
        elif self._trained[key] is False:
            parameter, before = self._frozen[key]
            self._trained[key] = not bool((parameter == before).all())
        return self._trained[key]

    def _remember(self, key: int, parameters: list[Any]) -> None:
        """Neither devices nor other ranks, which have shards of some kinds, are asked: those count as trained."""
        plain = sys.modules["torch"].nn.Parameter
        if any(type(one) is not plain or one.device.type != "cpu" for one in parameters):
            self._trained[key] = True
            return
        least = min(parameters, key=lambda one: one.numel())
        self._frozen[key] = least, least.detach().clone()


class Places:
    """Looks at one ``thread``; ``row_now()`` is the row that it is in.

    The thread that looks adds to these tables while the training thread reads them: what iterates, does so over a copy.
    """

    def __init__(self, thread: int, row_now: Callable[[], str]) -> None:
        self._thread, self._row_now = thread, row_now
        self._looks: dict[_Look, float] = {}
        """Seconds that each stands for."""
        self._model_lines: dict[_Call, int] = {}
        """Of functions from which a model is called, through others too, the first line that does."""
        self._backward_lines: dict[_Call, int] = {}
        """Of those from which gradients are computed, the last line that does."""
        self._switch_before: float | None = None
        """The script's own switch interval while its thread is looked at; ``None``: it is not."""
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
        self._called = _CalledModules()
        self.why_none = ""

    def start(self) -> None:
        """Begin to look; a second call goes on."""
        if self._switch_before is None:
            self._switch_before = sys.getswitchinterval()
            self.shorten_turns()
            threading.Thread(target=self._sample_on, daemon=True, name="stash-places").start()

    def shorten_turns(self) -> None:
        """Have the interpreter change hands sooner, unless that would change the turns of a thread that works."""
        before = self._switch_before
        if before is None:
            return
        enough = _WORKING * time.process_time()
        if all(seconds < enough for seconds in run_queue.seconds_of_threads().values()):
            sys.setswitchinterval(min(_SWITCH, before))
        elif sys.getswitchinterval() <= _SWITCH:
            sys.setswitchinterval(before)

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
            row = self._row_now()
            try:
                frame = private.stack_of(self._thread)
                if frame is not None:
                    self.add(row, frame, min(now - last, _LONGEST))
            except Exception as error:  # of an interpreter that shows no frames
                kind = type(error).__name__
                self.why_none = f"stacks of the training thread could not be read ({kind})"
                return
            if is_short and self._switch_before is not None:
                sys.setswitchinterval(min(_SWITCH, before))
            last = now
            self.held[row] += time.perf_counter() - now

    def add(self, row: str, frame: FrameType | None, seconds: float) -> None:
        """The thread was seen in ``frame`` for ``seconds`` of a row."""
        stack = _Stack.walk(frame)
        models, trains = self._find_model(stack.calls)
        if row == OPTIMIZER and models >= 0 and not stack.updates:
            row = FORWARD  # of another pass, whose gradients are added up
        self._seen[row].append(seconds)
        own, seen_in = stack.own, row
        if not own or (stack.is_of_library and row == COLLECTIVE):
            return  # the last is the model's own exchange, as of shards
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
            row, seen_in, tuple(own), stack.inside, max(0, models), is_frozen=trains is False
        )
        self._add_look(look, seconds)

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
            return not look.models and not asked.isdisjoint(look.own[1:])

        return known + self._relabel(FORWARD, hands_out, row=LOOP, prepares=True)

    def _find_asking_lines(self) -> set[tuple[_Call, int]]:
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

    def move_to_forward(self, is_known: bool = False) -> float:
        """Seconds of the rows ``loop`` from where the script calls its model to its gradients; now of ``forward``.

        None where it ``is_known`` when that was: then looks have the right row.
        """
        self._relabel(LOOP, self._is_before_the_model, prepares=True)
        if is_known:
            return 0.0
        return self._relabel(LOOP, self._is_of_a_pass, row=FORWARD)

    def _is_before_the_model(self, look: _Look) -> bool:
        known = self._find_model_caller(look)
        return known is not None and not look.models and known[1] < self._model_lines[known[0]]

    def _is_of_a_pass(self, look: _Look) -> bool:
        known = self._find_model_caller(look)
        if known is None:
            return False
        call, line = known
        return self._model_lines[call] <= line <= self._backward_lines.get(call, line)

    def _find_model_caller(self, look: _Look) -> tuple[_Call, int] | None:
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


def place_of(place: ScriptLine) -> dict[str, Any]:
    """Fields of ``LedgerPlace`` that a line has."""
    file, line = place
    text = linecache.getline(file, line).strip()[:_MOST_LETTERS]
    return {"file": path_from_here(file), "line": line, "text": text}


def own_line(frame: FrameType | None) -> ScriptLine | None:
    """The innermost of the script's own lines; ``None`` of what it did not write."""
    while frame is not None and not is_own(frame.f_code.co_filename):
        frame = frame.f_back
    return None if frame is None else (frame.f_code.co_filename, _line_of(frame))


def _line_of(frame: FrameType) -> int:
    """Some instructions are of no line: they are of the function's first one."""
    line: int | None = frame.f_lineno
    return frame.f_code.co_firstlineno if line is None else line


@cache
def is_own(path: str) -> bool:
    """Whether a file is the script's, or of its project; what has no file is not."""
    installed = path.startswith(_INSTALLED) or "site-packages" in path or "dist-packages" in path
    return not (installed or path.startswith("<") or path.startswith(str(_OWN)))


def path_from_here(path: str) -> str:
    """A path as somebody in the job's folder would type it."""
    here = os.path.join(os.getcwd(), "")
    return path.removeprefix(here)
