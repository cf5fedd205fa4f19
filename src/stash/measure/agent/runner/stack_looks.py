"""Where the training thread is: its stack, looked at every few milliseconds by a thread of the same process.

A look costs the training thread the interpreter for some ten microseconds, which is added up. A place is the
innermost line of the script's own code, or of what it imports from beside it; Python's library and installed packages
are what that line waits for. What the line is doing for the job, its row, is not known here.
"""

from __future__ import annotations

import linecache
import os
import sysconfig
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from stash.core.ledger_rows import COLLECTIVE, FORWARD, LOOP, OPTIMIZER
from stash.measure.agent import private

_PERIOD = 0.01
_LONGEST = 0.25
"""Seconds at most that one look stands for: a thread that held the interpreter, or a machine that stood still."""
_MOST_PLACES = 4
"""Of a row."""
_FEWEST_SECONDS = 0.02
_MOST_LETTERS = 120
_OWN = Path(__file__).parents[2]
_INSTALLED = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_OPTIMIZERS = os.path.join("torch", "optim", "optimizer.py")
_UPDATES = (
    _OPTIMIZERS,
    os.path.join("torch", "nn", "utils", "clip_grad.py"),
    os.path.join("torch", "amp", "grad_scaler.py"),
)
"""What a parameters' update is made of, between the backward pass and the step's end."""
_MODULES = os.path.join("torch", "nn", "modules", "module.py")


class ScriptLine(NamedTuple):
    """A line of the script's own code."""

    file: str
    line: int


class _Call(NamedTuple):
    """A function of the script's own that is under way."""

    file: str
    begins: int
    """The function's first line."""


@dataclass
class _Looks:
    seconds: float = 0.0
    inside: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """By the innermost function."""
    calls: dict[_Call, int] = field(default_factory=dict)
    """The functions under way at the last look, and at which line each was."""


class Places:
    """Looks at one ``thread``; ``row_now()`` is the row that it is in."""

    def __init__(self, thread: int, row_now: Callable[[], str]) -> None:
        self._thread, self._row_now = thread, row_now
        self._looks: dict[tuple[str, ScriptLine], _Looks] = {}
        self._model_lines: dict[_Call, int] = {}
        """Of functions that call a model, the first line that does; the outermost of models within each other."""
        self._is_looking = False
        self.of_optimizer = 0.0
        """Seconds of rows ``loop`` in which an optimizer worked, which cleared its gradients."""
        self.before_update = 0.0
        """Seconds of rows ``optimizer`` in which none worked: the script's own lines after the backward pass."""
        self.cost = 0.0
        """Seconds that looking took."""
        self.why_none = ""

    def start(self) -> None:
        """Begin to look; a second call goes on."""
        if self._is_looking:
            return
        self._is_looking = True
        threading.Thread(target=self._look_on, daemon=True, name="stash-places").start()

    def stop(self) -> None:
        self._is_looking = False

    def clear(self, keep: tuple[str, ...]) -> None:
        """Forget what was seen but for these rows; the thread that looks may add to it meanwhile."""
        self._looks = {key: looks for key, looks in self._looks.copy().items() if key[0] in keep}
        self.of_optimizer = self.before_update = 0.0

    def _look_on(self) -> None:
        last = time.perf_counter()
        while self._is_looking:
            time.sleep(_PERIOD)
            now = time.perf_counter()
            if not self._is_looking:  # what was seen is being read
                return
            try:
                self._look(min(now - last, _LONGEST))
            except Exception as error:  # of an interpreter that shows no frames: a profile goes on without places
                self.why_none = f"stacks of the training thread could not be read ({type(error).__name__})"
                return
            last = now
            self.cost += time.perf_counter() - now

    def _look(self, seconds: float) -> None:
        frame = private.stack_of(self._thread)
        if frame is not None:
            self.add(self._row_now(), frame, seconds)

    def add(self, row: str, frame: FrameType | None, seconds: float) -> None:
        """The thread was seen in ``frame`` for ``seconds`` of a row."""
        inside, place, calls = "", None, dict[_Call, int]()
        model: tuple[_Call, int] | None = None
        is_below, updates = False, row != OPTIMIZER
        while frame is not None:
            code, path = frame.f_code, frame.f_code.co_filename
            updates = updates or path.endswith(_UPDATES)
            if is_own(path):
                place = place or ScriptLine(path, frame.f_lineno)
                call = _Call(path, code.co_firstlineno)
                calls[call] = frame.f_lineno
                if is_below and row == COLLECTIVE and len(calls) == 1:
                    return  # the model's own exchange, as of shards
                if is_below:
                    model, is_below = (call, frame.f_lineno), False
            elif path.endswith(_MODULES):
                is_below = True
            elif row in (LOOP, FORWARD) and place is None and path.endswith(_OPTIMIZERS):
                self.of_optimizer += seconds if row == LOOP else 0.0  # what follows a batch is computing already
                row = OPTIMIZER
            if place is None and not _is_of_stash(path):
                inside = inside or getattr(code, "co_qualname", code.co_name)
            frame = frame.f_back
        if place is None:
            return
        if not updates:
            row = LOOP
            self.before_update += seconds
        looks = self._looks.setdefault((row, place), _Looks())
        looks.seconds += seconds
        looks.inside[inside] += seconds
        looks.calls = calls
        if model is not None:
            call, line = model
            self._model_lines[call] = min(line, self._model_lines.get(call, line))

    def before_the_model(self) -> float:
        """Seconds of the rows ``forward`` before the script calls its model; now of ``loop``."""
        return self._move(FORWARD, LOOP, lambda line, first: line < first)

    def _move(self, source: str, target: str, is_moved: Callable[[int, int], bool]) -> float:
        """Move looks by the line that a function is at, and the first of its lines that calls a model."""
        moved = 0.0
        for row, line in [key for key in self._looks.copy() if key[0] == source]:
            looks = self._looks[row, line]
            known = (
                (looks.calls[call], first) for call, first in self._model_lines.copy().items() if call in looks.calls
            )
            if any(is_moved(at, first) for at, first in known):
                moved += looks.seconds
                del self._looks[row, line]
                kept = self._looks.setdefault((target, line), _Looks())
                kept.seconds += looks.seconds
                for inside, each in looks.inside.items():
                    kept.inside[inside] += each
        return moved

    def from_the_model(self) -> float:
        """Seconds of the rows ``loop`` from where the script calls its model; now of ``forward``."""
        return self._move(LOOP, FORWARD, lambda line, first: line >= first)

    def rows(self) -> list[dict[str, Any]]:
        """Fields of ``records.rank_ledger.LedgerPlace``, of each row the longest first."""
        found: list[dict[str, Any]] = []
        by_row: dict[str, list[tuple[ScriptLine, _Looks]]] = defaultdict(list)
        for (row, line), looks in self._looks.copy().items():
            if looks.seconds >= _FEWEST_SECONDS:
                by_row[row].append((line, looks))
        for row, places in sorted(by_row.items()):
            for line, looks in sorted(places, key=lambda place: -place[1].seconds)[:_MOST_PLACES]:
                inside = max(looks.inside.copy(), key=lambda name: looks.inside[name])
                caller = self._caller(line, looks)
                found.append(
                    {"row": row, **place_of(line), "inside": inside, "seconds": looks.seconds, "caller": caller}
                )
        return found

    def _caller(self, line: ScriptLine, looks: _Looks) -> str:
        """Where the function that calls the model called what leads to the line; empty where it is its own line."""
        for call, at in looks.calls.items():
            if call in self._model_lines:
                return "" if ScriptLine(call.file, at) == line else f"{path_from_here(call.file)}:{at}"
        return ""


def place_of(line: ScriptLine) -> dict[str, Any]:
    """Fields of ``LedgerPlace`` that a line has."""
    text = linecache.getline(line.file, line.line).strip()[:_MOST_LETTERS]
    return {"file": path_from_here(line.file), "line": line.line, "text": text}


def own_line(frame: FrameType | None) -> ScriptLine | None:
    """The innermost of the script's own lines; ``None`` of what it did not write."""
    while frame is not None and not is_own(frame.f_code.co_filename):
        frame = frame.f_back
    return None if frame is None else ScriptLine(frame.f_code.co_filename, frame.f_lineno)


@cache
def _is_of_stash(path: str) -> bool:
    return path.startswith(str(_OWN))


@cache
def is_own(path: str) -> bool:
    """Whether a file is the script's, or of its project; what has no file is not."""
    installed = path.startswith(_INSTALLED) or "site-packages" in path or "dist-packages" in path
    return not (installed or path.startswith("<") or _is_of_stash(path))


def path_from_here(path: str) -> str:
    """A path as somebody in the job's folder would type it."""
    here = os.path.join(os.getcwd(), "")
    return path.removeprefix(here)
