"""What a trial of ``stash fix`` changes: settings of its orders, and those that blocks of one launch take turns in.

``settings`` is asked whenever a wrapped call runs, so that what is set by calls alone changes with the block. What is
set once for the process, like threads, flags and the form of optimizers, is put in and taken out by ``apply_turn``.
Everything is changed between two steps. Whether a setting can be switched at all is ``fix``'s to know. Where the
script calls what may be changed is recorded while it runs: a patch has to be written there.

Of waits for a GPU or for other ranks without need, ``torch.cuda.synchronize()`` and ``barrier()`` are left out where
the orders name a call; ``.item()`` gives the value of the step before, which is there already, so that what a script
prints comes one step late; copies of pinned batches do not wait if asked. Whether losses stay the same shows if that
was without need; it is not known here.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from types import CodeType, FrameType, ModuleType
from typing import Any, ClassVar

from stash.measure.agent import script
from stash.measure.protocol.orders import current_orders

TrialSettings = Mapping[str, Any]


class _Process:
    """What is on in this process now, and how to go back."""

    turn: ClassVar[TrialSettings] = {}
    undo: ClassVar[list[Callable[[], None]]] = []
    optimizers: ClassVar[weakref.WeakSet[Any]] = weakref.WeakSet()
    rests = False


def stop_recording() -> None:
    """From now on nothing more is recorded, but where loops over loaders begin; what is set stays so."""
    _Process.rests = True


def has_stopped_recording() -> bool:
    """Whether nothing is recorded any more."""
    return _Process.rests


def settings() -> TrialSettings:
    """What is changed now; nothing outside a trial."""
    orders = current_orders()
    return {**((orders and orders.trial) or {}), **_Process.turn}


def find_setting(name: str) -> dict[str, Any]:
    """The settings of that name; none are."""
    found = settings().get(name)
    return dict(found) if isinstance(found, Mapping) else {}


def is_ever_set(name: str) -> bool:
    """Whether this launch changes that at any time."""
    now = settings()
    return any(rung.get(name) for rung in (now, *now.get("rungs", ())))


def remember_optimizer(optimizer: Any) -> None:
    """Know an optimizer whose form may be switched."""
    if is_ever_set("optimizer"):
        _Process.optimizers.add(optimizer)


def set_flags(flags: Mapping[str, Any]) -> None:
    """Set attributes of torch, by name from below it; ``apply_turn`` sets them back."""
    for name, value in flags.items():
        *path, attribute = name.split(".")
        target: Any = functools.reduce(getattr, path, sys.modules["torch"])
        before = getattr(target, attribute)
        _Process.undo.append(functools.partial(setattr, target, attribute, before))
        setattr(target, attribute, value)


def apply_turn(turn: TrialSettings) -> None:
    """Change to the settings of another block; its loader is switched elsewhere."""
    while _Process.undo:
        _Process.undo.pop()()
    _Process.turn = {name: value for name, value in turn.items() if name != "loader"}
    set_flags(find_setting("flags"))
    if turn.get("threads"):
        torch = sys.modules["torch"]
        set_threads = inspect.unwrap(torch.set_num_threads)
        _Process.undo.append(functools.partial(set_threads, torch.get_num_threads()))
        set_threads(int(turn["threads"]))
    asked = find_setting("optimizer")
    for optimizer in list(_Process.optimizers) if asked else ():
        before = [dict(group) for group in optimizer.param_groups]
        _Process.undo.append(functools.partial(_set_groups, optimizer, before))
        _set_groups(optimizer, [{**group, **choose_form(asked)} for group in before])


def choose_form(asked: Mapping[str, Any]) -> dict[str, Any]:
    """An optimizer's arguments for one form of its update, without what asks for another."""
    return {"foreach": None, **asked} if "fused" in asked else dict(asked)


def _set_groups(optimizer: Any, wanted: list[dict[str, Any]]) -> None:
    """Give groups of parameters another form of the same update; a fused one keeps its count beside the parameter."""
    for group, new in zip(optimizer.param_groups, wanted, strict=True):
        for name in ("fused", "foreach"):
            if name in new:
                group[name] = new[name]
        for parameter in group["params"]:
            count = optimizer.state.get(parameter, {}).get("step")
            if hasattr(count, "to"):
                beside = group.get("fused") or group.get("capturable")
                optimizer.state[parameter]["step"] = count.to(parameter.device if beside else "cpu")


HERE = (
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    + os.sep
)
"""The folder of Stash."""
SITES: dict[str, dict[str, Any]] = {}
"""By ``kind:file:line:column``."""
_places: dict[tuple[str, CodeType, int], str] = {}
"""Keys of the calls recorded so far."""


def site_of(kind: str) -> str:
    """Record the call under way, in the first file that is neither PyTorch's nor Stash's; the value is its key."""
    torch_folder = os.path.dirname(sys.modules["torch"].__file__ or "") + os.sep
    frame = _find_caller((torch_folder, HERE, "<")) or sys._getframe(2)
    place = kind, frame.f_code, frame.f_lasti
    if place not in _places:
        _places[place] = _record_site(kind, frame)
    SITES[_places[place]]["calls"] += 1
    return _places[place]


def _find_caller(passed_over: tuple[str, ...]) -> FrameType | None:
    """The innermost frame of the call under way whose file's name begins with none of these."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(passed_over):
        frame = frame.f_back
    return frame


def _record_site(kind: str, frame: FrameType) -> str:
    """Note where a call stands."""
    code, place = frame.f_code, (frame.f_lineno, frame.f_lineno, None, None)
    if hasattr(code, "co_positions"):
        found = list(code.co_positions())[frame.f_lasti // 2]
        place = found if found[0] is not None else place
    names = ("line", "end_line", "column", "end_column")
    site = dict(zip(names, place, strict=True))
    key = f"{kind}:{code.co_filename}:{site['line']}:{site['column']}"
    SITES[key] = {"kind": kind, "file": code.co_filename, "function": code.co_name, **site}
    SITES[key] |= {"calls": 0, "values": {}}
    return key


def wrap_waits(torch: Any) -> None:
    """Wrap what waits for a GPU; ``torch`` is imported as far as its optimizers."""
    if not torch.backends.cuda.is_built():
        return
    script.wrap(torch.cuda, "synchronize", _leave_out, "synchronize")
    script.wrap(torch.Tensor, "item", _wrap_item, LaterValues(torch.cuda.Event))
    for name in ("to", "cuda"):
        script.wrap(torch.Tensor, name, wrap_copy, torch)


def wrap_barriers(module: ModuleType) -> None:
    """Wrap barriers, of ``torch.distributed.distributed_c10d``."""
    script.wrap(module, "barrier", _leave_out, "barrier")


def _leave_out(wait: Any, name: str) -> Any:
    skips = is_ever_set("skip")

    @functools.wraps(wait)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if (_Process.rests and not skips) or sys._getframe(1).f_code.co_filename.startswith(HERE):
            return wait(*args, **kwargs)
        key = site_of("wait")
        values = SITES[key]["values"] = SITES[key]["values"] or {"name": name, "seconds": 0.0}
        if skips and key in (settings().get("skip") or ()):
            return None
        began = time.perf_counter()
        try:
            return wait(*args, **kwargs)
        finally:
            values["seconds"] += time.perf_counter() - began

    return wrapper


def _wrap_item(item: Any, before: LaterValues) -> Any:
    """``.item()`` of a tensor on a GPU."""

    @functools.wraps(item)
    def wrapper(self: Any) -> Any:
        if not self.is_cuda or sys._getframe(1).f_code.co_filename.startswith(HERE):
            return item(self)
        is_late = site_of("item") == settings().get("late")
        return before.read_late(self, item) if is_late else item(self)

    return wrapper


class LaterValues:
    """A number on a device, one call late: a copy is under way while the one before is given."""

    def __init__(self, event: Callable[[], Any]) -> None:
        self._event = event
        self._copy: tuple[Any, Any] | None = None

    def read_late(self, tensor: Any, item: Callable[[Any], Any]) -> Any:
        """The number that was asked for last time; at first this one."""
        before, done = self._copy, self._event()
        self._copy = tensor.detach().to("cpu", non_blocking=True), done
        done.record()
        if before is None:
            return item(tensor)
        before[1].synchronize()  # of a step ago: it hardly ever waits
        return item(before[0])


def wrap_copy(move: Any, torch: Any) -> Any:
    """A method that copies a tensor to a GPU: where the script does, and without waiting if asked and it is pinned."""
    modules = os.path.join(os.path.dirname(torch.__file__), "nn", "modules", "")

    @functools.wraps(move)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        place = args[0] if args else kwargs.get("device", kwargs.get("other"))
        # it says whether to wait, without a name
        known = any(isinstance(each, bool) for each in args)
        to_gpu = move.__name__ == "cuda" or _is_gpu(place)
        if self.is_cuda or known or not to_gpu:
            return move(self, *args, **kwargs)
        caller = _find_caller((HERE,))
        if caller is not None and caller.f_code.co_filename.startswith(modules):
            return move(self, *args, **kwargs)
        pinned, waits = self.is_pinned(), not kwargs.get("non_blocking")
        SITES[site_of("copy")]["values"] = {"non_blocking": not waits, "pinned": pinned}
        if pinned and waits and settings().get("non_blocking"):
            kwargs["non_blocking"] = True
        return move(self, *args, **kwargs)

    return wrapper


def _is_gpu(place: Any) -> bool:
    """Whether that is a CUDA device in one of the ways in which ``to`` takes it: a tensor there, a number, a name."""
    kind = getattr(getattr(place, "device", place), "type", place)
    return isinstance(place, int) or (isinstance(kind, str) and kind.startswith("cuda"))
