"""Where a script steps: optimizers, loss scalers, schedulers, updates without torch.optim; and starts ranks itself.

A step ends where an optimizer steps, whatever the framework around it. Schedulers that count the job's steps are kept
from failing over the extra ones a profile takes. Also where ``multiprocessing`` has the sockets of what a script
starts. What a step is measured for is not known here.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections import deque
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from stash.measure.agent import private, script
from stash.measure.agent.data import batches
from stash.measure.agent.last_words import report_crashes_of_ranks
from stash.measure.agent.script import Function
from stash.measure.agent.thread_events import ThreadEvent
from stash.measure.protocol.journal import has_ended
from stash.measure.protocol.orders import current_orders

T = TypeVar("T")
_LIKE_CYCLES = 3


class _WatchedGradient:
    """One parameter's gradient, as the last backward pass left it."""

    def __init__(self, parameter: Any) -> None:
        self._parameter = parameter
        self._known: tuple[Any, int, Any] | None = None
        """It, its version and its content."""

    def remember(self) -> None:
        """A backward pass ended."""
        now = self._parameter.grad
        self._known = now if now is None else (now, private.version(now), now.detach().clone())

    def has_changed(self) -> bool:
        """Whether it was cleared, replaced or written since; ``.data`` hides a write from the version."""
        now = self._parameter.grad
        if self._known is None:
            return False
        gradient, version, content = self._known
        if now is not gradient or private.version(now) != version:
            return True
        return not bool((now == content).all())


class _Cycle:
    """Backward passes from one use of the gradients to the next; ``length`` once a few were alike."""

    def __init__(self) -> None:
        self.length: int | None = None
        self._passes = 0
        self._latest: deque[int] = deque(maxlen=_LIKE_CYCLES)

    def add_pass(self) -> bool:
        """Whether it is the last of a cycle."""
        self._passes += 1
        is_last = self._passes == self.length
        self._passes = 0 if is_last else self._passes
        return is_last

    def close(self) -> None:
        """Gradients were used, which ended a cycle."""
        self._latest.append(self._passes)
        self._passes = 0
        if len(self._latest) == _LIKE_CYCLES and len(set(self._latest)) == 1:
            self.length = self._latest[0]
            every = "every backward pass" if self.length == 1 else f"{self.length} backward passes"
            script.note(
                f"the script has no torch.optim optimizer: its gradients are used after {every}, which is counted as "
                "a step; if that is wrong, write `stash.step()` after the update"
            )


class OwnUpdate:
    """Stands in for the optimizer of a script that has none; ``param_groups`` are the leaves of its loss.

    Such a script updates its parameters by hand, or by a framework's own optimizer. A gradient that is not what the
    last backward pass left was used in between: so passes that accumulate differ from passes that end a step. After a
    few like cycles, a step ends where the last pass of a cycle does, before any collective or forward pass of the
    next one. ``stash.step()`` says it outright.
    """

    def __init__(self) -> None:
        self.param_groups: list[dict[str, Any]] = []
        self.unneeded = False
        """A torch.optim optimizer, or the script itself, marks where steps end."""
        self.others_steps = 0
        """Steps that torch.optim's optimizers have taken."""
        self.others: weakref.WeakSet[Any] = weakref.WeakSet()
        """Those of them that are there, whether they have stepped or not."""
        self._cycle = _Cycle()
        self._watched: _WatchedGradient | None = None
        self._running = False
        self._returned = 0
        """How often a function returned gradients instead of leaving them in parameters."""

    def mark_step(self) -> None:
        """The script says that its step ended here."""
        self.unneeded = True
        script.listener().stepped(self)

    def other_made(self, optimizer: Any, *_: Any, **__: Any) -> None:
        """There is an optimizer of torch.optim's, whose steps will be noticed."""
        self.unneeded = True
        self.others.add(optimizer)

    def other_stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """One stepped, which ends a step of the job unless it is captured into a CUDA graph."""
        self.unneeded = True
        self.others_steps += 1
        listener = script.bus.listener
        if (listener.listens or listener.counts) and not (_may_capture() and _is_captured()):
            listener.stepped(optimizer)

    def backward(self, run: Any, tensors: Any, *args: Any, **kwargs: Any) -> None:
        """Run a backward pass and judge whether it ended a step; one inside another (checkpointing) is part of it."""
        if self._running or not script.active():
            run(tensors, *args, **kwargs)
            return
        self._running = True
        try:
            # the first loss shows what is trained
            if not self.param_groups and (leaves := _find_leaves(tensors)):
                self.param_groups.append({"params": leaves})
                self._watched = _WatchedGradient(min(leaves, key=lambda leaf: leaf.numel()))
            # what the passes before left was used
            if self._cycle.length is None and self._watched and self._watched.has_changed():
                self._cycle.close()
            run(tensors, *args, **kwargs)
        finally:
            self._running = False
        ends = self._cycle.add_pass()
        if self._cycle.length is None and self._watched is not None:
            self._watched.remember()
        elif ends:
            script.listener().stepped(self)

    def run_gradients(self, run: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run what returns gradients instead of leaving them in parameters, as all of ``torch.func`` does.

        A script that has nothing else updates with each of them. They are of the parameters' sizes and devices.
        """
        if self.unneeded or self._running or self._watched is not None or not script.active():
            return run(*args, **kwargs)
        self._running = True
        script.backward_begins()
        try:
            found = run(*args, **kwargs)
        finally:
            self._running = False
            script.publish(ThreadEvent.BACKWARD_ENDED)
        self._returned += 1
        if self._returned == _LIKE_CYCLES:
            self.param_groups.append({"params": list(batches.iter_tensors(found))})
            script.note(
                "the script has no torch.optim optimizer and no backward pass: each of its calls for gradients is "
                "counted as a step; if that is wrong, write `stash.step()` after the update"
            )
        elif self._returned > _LIKE_CYCLES:
            script.listener().stepped(self)
        return found


def _find_leaves(tensors: Any) -> list[Any]:
    """The parameters that the graphs of a tensor, or of several, reach, each once."""
    several = tensors if isinstance(tensors, (tuple, list)) else (tensors,)
    ahead, seen = [tensor.grad_fn for tensor in several], {None}
    found: dict[int, Any] = {}
    while ahead:
        node: Any = ahead.pop()
        if node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)  # of the nodes that accumulate into a leaf
        if variable is not None:
            found[id(variable)] = variable
        ahead += (following for following, _ in node.next_functions)
    return list(found.values())


own_update = OwnUpdate()
"""Of this process."""


def wrap_backward(module: ModuleType) -> None:
    """Wrap ``torch.autograd.backward``, which ``Tensor.backward`` calls."""
    backward = module.backward

    @functools.wraps(backward)
    def wrapper(tensors: Any, *args: Any, **kwargs: Any) -> None:
        script.backward_begins()
        try:
            if own_update.unneeded:
                backward(tensors, *args, **kwargs)
            else:
                own_update.backward(backward, tensors, *args, **kwargs)
        finally:
            script.publish(ThreadEvent.BACKWARD_ENDED)

    script.put(module, backward=wrapper)
    script.wrap(module, "grad", _count_returning)


def wrap_functorch(module: ModuleType) -> None:
    """The same for ``torch.func``; of ``torch._functorch.eager_transforms``."""
    if hasattr(module, "grad_and_value_impl"):
        script.wrap(module, "grad_and_value_impl", _count_returning)


def _count_returning(gradients: Callable[..., T]) -> Callable[..., T]:
    @functools.wraps(gradients)
    def wrapper(*args: Any, **kwargs: Any) -> T:
        from torch.compiler import is_compiling

        if is_compiling() or own_update.unneeded:
            return gradients(*args, **kwargs)
        return own_update.run_gradients(gradients, *args, **kwargs)

    return wrapper


def wrap_optimizer(module: ModuleType) -> None:
    """Notice every optimizer step of this process."""
    module.register_optimizer_step_pre_hook(_tell_of_update)
    module.register_optimizer_step_post_hook(own_update.other_stepped)
    script.after(module.Optimizer, "__init__", own_update.other_made)
    script.wrap(module.Optimizer, "zero_grad", _tell_of_clearing)


def _tell_of_update(optimizer: Any, args: Any, kwargs: Any) -> None:
    script.publish(ThreadEvent.UPDATE_BEGINS)


def wrap_module(module: ModuleType) -> None:
    """Tell of every module whose gradients are cleared (``torch.nn.modules.module``)."""
    script.wrap(module.Module, "zero_grad", _tell_of_clearing)


def _tell_of_clearing(clear: Function) -> Function:
    """Clearing is a part of the update, though scripts do it after the step or beside their own lines."""

    @functools.wraps(clear)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        from torch.compiler import is_compiling

        if is_compiling():
            return clear(*args, **kwargs)
        script.publish(ThreadEvent.CLEARING_BEGINS)
        script.listener().clears(*args[:1])
        try:
            return clear(*args, **kwargs)
        finally:
            script.publish(ThreadEvent.CLEARING_ENDED)

    return wrapper


@functools.cache
def _may_capture() -> bool:
    from torch.version import cuda, hip

    return bool(cuda or hip)


def _is_captured() -> bool:
    """Whether this step is being captured into a CUDA graph, whose replays are not seen."""
    cuda: Any = sys.modules["torch"].cuda
    is_captured = cuda.is_initialized() and cuda.is_current_stream_capturing()
    if is_captured:
        script.note(
            "the optimizer step is captured in a CUDA graph, whose replays Stash cannot see"
        )
    return bool(is_captured)


def wrap_scaler(module: ModuleType) -> None:
    """A step that AMP's loss scaling skips (gradients overflowed) is a step of the loop all the same."""
    step = module.GradScaler.step

    @functools.wraps(step)
    def wrapper(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        before = own_update.others_steps
        result = step(self, optimizer, *args, **kwargs)
        listener = script.bus.listener
        if own_update.others_steps == before and (listener.listens or listener.counts):
            listener.skipped(optimizer)
        return result

    script.put(module.GradScaler, step=wrapper)


def wrap_schedulers(module: ModuleType) -> None:
    """Let schedulers that count the job's steps pass over the extra ones a profile takes."""
    names = (
        "LRScheduler",
        "OneCycleLR",
        "ReduceLROnPlateau",
        "CosineAnnealingWarmRestarts",
        "SequentialLR",
    )
    for name in names:
        cls = getattr(module, name, None)
        if cls is not None and "step" in vars(cls):
            script.wrap(cls, "step", _tolerate_extra)


def _tolerate_extra(step: Function) -> Function:
    @functools.wraps(step)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return step(*args, **kwargs)
        except ValueError:
            if not script.active():
                raise
            return None

    return wrapper


def wrap_spawn(module: ModuleType) -> None:
    """After ``mp.spawn`` the ranks have been profiled: the parent must not go on to use their results."""
    for name in ("spawn", "start_processes"):
        script.after(module, name, _leave_if_measured)


def wrap_processes(module: ModuleType) -> None:
    """The same for a parent that joins its ranks one by one; a loader's workers, which are daemons, are not ranks."""
    report_crashes_of_ranks(module)

    def leave_after_join(process: Any, *_: Any, **__: Any) -> None:
        if not process.daemon:
            _leave_if_measured()

    script.after(module.BaseProcess, "join", leave_after_join)


def _leave_if_measured(*_: Any, **__: Any) -> None:
    orders = current_orders()
    if orders is not None and has_ended(orders.files):
        sys.stdout.flush()
        sys.stderr.flush()
        script.hard_exit(0)


_MAX_FOLDER = 107 - len("/listener-xxxxxxxx")
"""Bytes of the folder's name: a socket's whole path may have 107 (unix(7))."""


def keep_sockets_in_run(module: ModuleType) -> None:
    """Set the folder for sockets that ``multiprocessing.util`` would make; processes started from here inherit it.

    It would make one in the temporary folder and remove it when the process exits; processes that are ended leave
    theirs. The run's folder is removed with all it holds.
    """
    orders = current_orders()
    if orders is None:
        return
    folder = orders.files.sockets
    if len(os.fsencode(folder)) <= _MAX_FOLDER:
        folder.mkdir(exist_ok=True)
        module.process.current_process()._config["tempdir"] = str(folder)
