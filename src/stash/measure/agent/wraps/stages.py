"""The wraps of a run that is watched and otherwise left alone: where it waits, and where its forward passes begin.

Nothing here changes what is read, sent or computed; each wrap tells the listener of a stage and calls the original.
What else is told of steps is the same for profiles (``wraps/steps``).

A forward pass begins with copies of its batch to the device, or with calls of its models. Copies go through
``Tensor.to``, ``Tensor.cuda`` or ``Tensor.copy_``, whichever framework asks for them; those are wrapped once the job
is known to train on CUDA, after its first step (by then libraries have made their tables of tensors' methods), and
every call of another kind costs one look at the tensor. Models are looked for in one step, and only where no loader
was seen: from then on calls of their classes say that the batch is made. Classes are wrapped, never objects: models
are pickled and copied, hooks with them.

Not seen: copies inside compiled code, and those in another stream than the one that steps end in, which the device
need not wait for; their time, where there is any, is in the stage around.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable
from threading import get_ident
from types import ModuleType
from typing import Any
from weakref import WeakSet

from stash.measure.agent import private, script
from stash.measure.agent.script import Function
from stash.measure.agent.thread_events import ThreadEvent
from stash.measure.agent.wraps.groups import LOCAL
from stash.measure.agent.wraps.opened_files import is_storage

_MAX_CALLS = 4
"""Of one class until a backward pass: one that the script calls more often is a layer, and no model."""
_followed: WeakSet[type[Any]] = WeakSet()
"""Classes whose calls are told of."""


def wrap_loaders(module: ModuleType) -> None:
    """Tell of every wait for a loader's iterator and for its batches (``torch.utils.data.dataloader``)."""
    private.wrap_handing_out(module, _tell_of_wait)
    private.surround_loops(module, _tell_of_start)


def _tell_of_start(get_iterator: Function, loader: Any) -> Any:
    return script.listener().loops.started(loader, get_iterator, loader)


def _tell_of_wait(hand_out: Function) -> Function:
    @functools.wraps(hand_out)
    def wrapper(self: Any) -> Any:
        listener = script.bus.listener
        if not listener.listens:
            return hand_out(self)
        return listener.loops.waited(private.data_set(self), hand_out, self)

    return wrapper


def wrap_saves(module: ModuleType) -> None:
    """Tell of every save of a checkpoint, of a module that has any of PyTorch's or safetensors' functions for it."""
    for name in ("save", "save_state_dict", "async_save", "save_file", "save_model"):
        if hasattr(module, name):
            script.surround(module, name, _save_in_stage)


def wrap_compilation(module: ModuleType) -> None:
    """Tell of every compilation of torch.compile's, by the callbacks that it has for that, if it has.

    Older versions of PyTorch call them without arguments.
    """
    handler = getattr(module, "callback_handler", None)
    if handler is None:
        return
    handler.register_start_callback(lambda *_: script.publish(ThreadEvent.COMPILATION_BEGINS))
    handler.register_end_callback(lambda *_: script.publish(ThreadEvent.COMPILATION_ENDED))


def _save_in_stage(save: Function, *args: Any, **kwargs: Any) -> Any:
    if args and is_storage(args[0]):
        return save(*args, **kwargs)
    with script.saving():
        return save(*args, **kwargs)


def wrap_collectives(c10d: ModuleType) -> None:
    """Tell of every call of a collective, before anyone copies its name; and of waits for one that goes on beside."""
    for name in LOCAL:
        if hasattr(c10d, name):
            script.wrap(c10d, name, _tell_of_collective)
    script.wrap(c10d.Work, "wait", _tell_of_collective)


def _tell_of_collective(original: Function) -> Function:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return script.run_collective(original, *args, **kwargs)

    return wrapper


class BatchCopies:
    """Tells of copies of host tensors to the CUDA device that trains, in the stream that steps end in."""

    _only: BatchCopies | None = None

    @classmethod
    def follow_process(cls, device: Any = None) -> BatchCopies:
        """The one of this process, which stays when a watch ends; for the ``device`` whose queue is followed."""
        cls._only = cls._only or cls(device)
        cls._only.follow(device)
        return cls._only

    def __init__(self, device: Any = None) -> None:
        torch = sys.modules["torch"]
        self._tensor, self._device = torch.Tensor, torch.device
        self._here = private.current_stream(torch.cuda)
        self._with_gradients = torch.is_grad_enabled
        self.follow(device)
        for name in ("to", "cuda", "copy_"):
            script.wrap(torch.Tensor, name, self._wrap_copy)

    def _wrap_copy(self, copy: Function) -> Function:
        fills, usual = copy.__name__ == "copy_", "cuda" if copy.__name__ == "cuda" else None

        @functools.wraps(copy)
        def wrapper(tensor: Any, /, *args: Any, **kwargs: Any) -> Any:
            source, given = tensor, args[0] if args else None
            if fills:
                source = kwargs.get("src") if given is None else given
            if type(source) is not self._tensor or source.is_cuda:
                return copy(tensor, *args, **kwargs)
            if given is None:
                given = kwargs.get("device", kwargs.get("tensor", usual))
            if not self._comes_here(tensor.device if fills else given):
                return copy(tensor, *args, **kwargs)
            script.publish(ThreadEvent.COPY_BEGINS)
            try:
                return copy(tensor, *args, **kwargs)
            finally:
                script.publish(ThreadEvent.COPY_ENDED)

        return wrapper

    def follow(self, device: Any) -> None:
        """From now on copies to this ``device``, by itself the current one; a step ended."""
        self._stream = private.current_stream(sys.modules["torch"].cuda, device)
        self.step_ends()

    def step_ends(self) -> None:
        """A step ended in the calling thread's stream."""
        self._own = self._stream()

    def _comes_here(self, place: Any) -> bool:
        """Whether that, in whichever of PyTorch's ways it is written, is the device whose queue a step now fills."""
        if isinstance(place, (str, int)):
            place = self._device(place)
        elif isinstance(place, self._tensor):
            place = place.device
        if getattr(place, "type", "") != "cuda" or not self._with_gradients():
            return False
        index = self._here().device_index if place.index is None else place.index
        return bool(index == self._own.device_index and self._stream() == self._own)


class CalledModels:
    """Finds the classes of modules that the script itself calls in a step, with gradients, and tells of their calls.

    What a module calls within is none of them: the units of a sharded model are of its own class.
    """

    def __init__(self) -> None:
        self._passes = script.passes()
        self._module = sys.modules["torch.nn.modules.module"].Module
        self._calls: Counter[type[Any]] = Counter()
        """Since the last backward pass."""
        self._most: Counter[type[Any]] = Counter()
        """The most of those."""
        self._call = self._module.__call__
        script.wrap(self._module, "__call__", self._watch_calls)

    def _watch_calls(self, call: Function) -> Function:
        thread, compiling, is_inside = get_ident(), _find_compile_check(), False
        has_gradients = sys.modules["torch"].is_grad_enabled

        @functools.wraps(call)
        def wrapper(module: Any, /, *args: Any, **kwargs: Any) -> Any:
            nonlocal is_inside
            if compiling() or is_inside or get_ident() != thread or not has_gradients():
                return call(module, *args, **kwargs)
            is_inside = self._is_model(module)
            try:
                return call(module, *args, **kwargs)
            finally:
                is_inside = False

        return wrapper

    def _is_model(self, module: Any) -> bool:
        """Whether it has parameters; frozen ones (a backbone, a teacher) do as well."""
        if script.passes() != self._passes:
            self._passes = script.passes()
            self._calls.clear()
        model = type(module)
        try:
            if model not in self._most and next(iter(module.parameters()), None) is None:
                return False
        except Exception as error:
            script.listener().give_up(error)
            return False
        self._calls[model] += 1
        self._most[model] = max(self._most[model], self._calls[model])
        return True

    def end(self) -> bool:
        """The step is over: follow what was found; whether there was anything."""
        script.put(self._module, __call__=self._call)
        models = [model for model, calls in self._most.items() if calls <= _MAX_CALLS]
        for model in models:
            follow_calls(model)
        return bool(models)


def follow_calls(model: Any) -> None:
    """Tell of every call of a module of this class, outside compiled code and with gradients."""
    if model in _followed:
        return
    _followed.add(model)
    own, compiling = vars(model).get("__call__"), _find_compile_check()
    has_gradients = sys.modules["torch"].is_grad_enabled

    def begins(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if not compiling() and has_gradients():
            script.publish(ThreadEvent.MODEL_CALLED)
        if own is not None:
            return own(self, *args, **kwargs)
        # what is inherited is looked up at each call: others (torch.fx) replace it for a while
        return super(model, self).__call__(*args, **kwargs)

    script.put(model, __call__=begins)


def _find_compile_check() -> Callable[[], bool]:
    from torch.compiler import is_compiling

    return is_compiling
