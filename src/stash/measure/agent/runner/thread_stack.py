"""What a look at a thread's stack shows: the script's own lines, the models that it calls, and what it is inside of.

The script's own code is its file, and what it imports from beside it; Python's library and installed packages are
none. What a line does for the job is not known here.
"""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TypeAlias

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
_CALLS = ("_call_impl", "_wrapped_call_impl")
"""Functions of that by which a model is called; others are none of a pass: ``state_dict``, ``parameters``."""
_ENGINE = "_engine_run_backward"
"""PyTorch's function around the engine, which calls hooks of the script's own, and nothing else of it, directly."""

ScriptLine: TypeAlias = tuple[str, int]
"""A line of the script's own code: its file, and its number."""
ScriptCall: TypeAlias = tuple[str, int]
"""A function of the script's own that is under way: its file, and its first line."""


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
class ThreadStack:
    """What there is to see of a stack; the thread under it waits meanwhile."""

    own: list[tuple[ScriptCall, int]] = field(default_factory=list)
    """The script's functions under way and at which line each is, the innermost first."""
    inside: str = ""
    """The function of a library that the innermost line waits for; empty where there is none."""
    calls: list[tuple[int, FrameType]] = field(default_factory=list)
    """Of modules, the innermost first: how many of ``own`` came before it, and its frame.

    Also of what may be one, whose ``forward`` the script calls itself, as ``model.forward(x)``.
    """
    updates: bool = False
    """A parameters' update is under way."""
    is_hooked: bool = False
    """The engine calls a function of the script's own, outside an update."""
    is_of_library: bool = False
    """The script's innermost line waits for a module or an update, or for gradients, and for no function of its own."""

    @classmethod
    def walk(cls, frame: FrameType | None) -> ThreadStack:
        """From the innermost ``frame`` on."""
        self, is_callee_own = cls(), False
        forward: FrameType | None = None
        while frame is not None:
            code = frame.f_code
            kind = _kind_of(code.co_filename, code.co_name)
            if forward is not None and not kind.is_call:
                self.calls.append((len(self.own), forward))
            self.updates = self.updates or kind.is_update
            if kind.is_own:
                self.own.append(((code.co_filename, code.co_firstlineno), _line_of(frame)))
            else:
                if kind.is_call:
                    self.calls.append((len(self.own), frame))
                if not self.own:
                    is_of_library = kind.is_call or kind.is_update or kind.is_engine
                    self.is_of_library = self.is_of_library or is_of_library
                    if not (self.inside or kind.is_of_stash):
                        self.inside = getattr(code, "co_qualname", code.co_name)
                elif is_callee_own and kind.is_engine and not self.updates:
                    self.is_hooked = True
            is_callee_own = kind.is_own
            forward = frame if kind.is_own and code.co_name == "forward" else None
            frame = frame.f_back
        return self


class CalledModules:
    """Whether modules train. Parameters without gradients may change all the same: averages of a model that trains do,
    and a critic's that is held while its generator steps; the least of them tells.
    """

    def __init__(self) -> None:
        self._trained: dict[int, bool | None] = {}
        """By a module's ``id``."""
        self._frozen: dict[int, tuple[Any, Any]] = {}
        """Of those that do not, a parameter and what it was when the module was first seen."""

    def is_trained(self, module: Any) -> bool | None:
        """``None`` of a module without parameters, as metrics and transforms are, and of what is none."""
        if not isinstance(module, sys.modules["torch"].nn.Module):
            return None
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
