"""Steps of scripts that update their parameters without torch.optim: by hand, or by a framework's own optimizer.

A gradient that is not what the last backward pass left was used in between: so passes that accumulate are told apart
from passes that end a step. After a few like cycles, a step ends where the last pass of a cycle does, before any
collective or forward pass of the next one. ``stash.step()`` says it outright.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from stash.measure.agent import private, script

_LIKE_CYCLES = 3


class _Watched:
    """One parameter's gradient, as the last backward pass left it."""

    def __init__(self, parameter: Any) -> None:
        self._parameter = parameter
        self._gradient: Any = None
        self._version = -1
        self._content: Any = None

    def remember(self) -> None:
        """A backward pass ended."""
        self._gradient = self._parameter.grad
        if self._gradient is not None:
            self._version = private.version(self._gradient)
            self._content = self._gradient.detach().clone()

    def used(self) -> bool:
        """Whether it was cleared, replaced or written since; ``.data`` hides a write from the version."""
        now = self._parameter.grad
        if self._gradient is None:
            return False
        if now is not self._gradient or private.version(now) != self._version:
            return True
        return not bool((now == self._content).all())


class OwnUpdate:
    """Stands in for the optimizer of a script that has none; ``param_groups`` are the leaves of its loss."""

    def __init__(self) -> None:
        self.param_groups: list[dict[str, Any]] = []
        self.told = False
        """A torch.optim optimizer, or the script itself, tells where steps end."""
        self._passes = 0
        self._cycles: list[int] = []
        self._cycle: int | None = None
        self._watched: _Watched | None = None
        self._running = False

    def marked(self) -> None:
        """The script says that its step ended here."""
        self.told = True
        script.stepped(self)

    def meet(self, tensors: Any) -> None:
        """Learn from the first loss what is trained."""
        if self.param_groups:
            return
        leaves = _leaves(tensors if isinstance(tensors, (tuple, list)) else (tensors,))
        if leaves:
            self.param_groups = [{"params": leaves}]
            self._watched = _Watched(min(leaves, key=lambda leaf: leaf.numel()))

    def backward(self, run: Any, tensors: Any, *args: Any, **kwargs: Any) -> None:
        """Run a backward pass and judge whether it ended a step; one inside another (checkpointing) is part of it."""
        if self._running or not script.active():
            run(tensors, *args, **kwargs)
            return
        self._running = True
        try:
            self.meet(tensors)
            if self._cycle is None:
                self._judge()
            run(tensors, *args, **kwargs)
        finally:
            self._running = False
        self._passed()

    def _judge(self) -> None:
        """Before a pass: what the passes before it were used for."""
        if self._watched is None or not self._watched.used():
            return
        self._cycles.append(self._passes)
        self._passes = 0
        latest = self._cycles[-_LIKE_CYCLES:]
        if len(latest) == _LIKE_CYCLES and len(set(latest)) == 1:
            self._cycle = latest[0]
            script.note(_how_counted(self._cycle))

    def _passed(self) -> None:
        self._passes += 1
        if self._cycle is None:
            if self._watched is not None:
                self._watched.remember()
        elif self._passes == self._cycle:
            self._passes = 0
            script.stepped(self)


def _how_counted(passes: int) -> str:
    every = "every backward pass" if passes == 1 else f"{passes} backward passes"
    return (
        f"the script has no torch.optim optimizer: its gradients are used after {every}, which is counted as a step; "
        "if that is wrong, write `stash.step()` after the update"
    )


def _leaves(tensors: Any) -> list[Any]:
    """The parameters that the graphs of these tensors reach, each once."""
    ahead = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    seen = set(ahead)
    found: dict[int, Any] = {}
    while ahead:
        node = ahead.pop()
        variable = getattr(node, "variable", None)  # of the nodes that accumulate into a leaf
        if variable is not None:
            found[id(variable)] = variable
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                ahead.append(following)
    return list(found.values())


own_update = OwnUpdate()
"""Of this process."""


def wrap_backward(module: ModuleType) -> None:
    """Wrap ``torch.autograd.backward``, which ``Tensor.backward`` calls."""
    backward = module.backward

    @functools.wraps(backward)
    def heard(tensors: Any, *args: Any, **kwargs: Any) -> None:
        script.passed()
        if own_update.told:
            backward(tensors, *args, **kwargs)
        else:
            own_update.backward(backward, tensors, *args, **kwargs)

    module.backward = heard  # type: ignore[attr-defined]
