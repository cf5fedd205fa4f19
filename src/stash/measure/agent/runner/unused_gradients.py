"""Gradients that are computed and cleared without an update: a critic's pass through a generator that is not detached.

They have changed since their optimizer stepped, and another one has stepped meanwhile: what a script reads of gradients
between two backward passes is not known. Followed in a job's first steps, by the smallest parameter of each optimizer
that has a gradient, and by its version alone: to compare its numbers a device would be waited for.
"""

from __future__ import annotations

import sys
from typing import Any

from stash.measure.agent import private
from stash.measure.agent.runner.optimizers import SeenOptimizer

_FEWEST = 3
"""Times that gradients are cleared so, until that is how the job trains."""


class _FollowedGradient:
    """The gradient of one ``parameter``."""

    def __init__(self, parameter: Any) -> None:
        self.parameter = parameter
        self._used: tuple[Any, int] | None = None
        """It and its version when its optimizer stepped last."""
        self._cleared = self._unused = 0

    def note_step(self) -> None:
        gradient = self.parameter.grad
        self._used = None if gradient is None else (gradient, private.version(gradient))

    def note_clearing(self, has_other_stepped: bool) -> None:
        """It is about to be cleared, and since its optimizer stepped another one has."""
        gradient, used = self.parameter.grad, self._used
        if gradient is not None and used is not None:
            has_changed = gradient is not used[0] or private.version(gradient) != used[1]
            self._cleared += 1
            self._unused += has_changed and has_other_stepped

    @property
    def is_unused(self) -> bool:
        """Whether that is so most of the time."""
        return self._unused >= _FEWEST and 2 * self._unused > self._cleared


class UnusedGradients:
    """Those of a script's optimizers."""

    def __init__(self) -> None:
        self._followed: dict[SeenOptimizer, _FollowedGradient] = {}
        self._latest: SeenOptimizer | None = None
        """That stepped."""

    def note_step(self, optimizer: SeenOptimizer) -> None:
        """It stepped."""
        self._latest = optimizer
        if optimizer not in self._followed:
            trained = [each for each in optimizer.parameters if each.grad is not None]
            if not trained:
                return
            smallest = min(trained, key=lambda each: each.numel())
            self._followed[optimizer] = _FollowedGradient(smallest)
        self._followed[optimizer].note_step()

    def note_clearing(self, owner: Any) -> None:
        """Gradients of an optimizer, or of a module, are about to be cleared."""
        is_module = isinstance(owner, sys.modules["torch"].nn.Module)
        cleared = {id(each) for each in owner.parameters()} if is_module else set()
        for optimizer, followed in self._followed.items():
            if optimizer.optimizer() is owner or id(followed.parameter) in cleared:
                followed.note_clearing(optimizer is not self._latest)

    def finish(self) -> int | None:
        """How many numbers the optimizers train whose gradients are mostly cleared so; ``None`` without any.

        They are followed no more.
        """
        unused = sum(each.trains for each, followed in self._followed.items() if followed.is_unused)
        self._followed.clear()
        return unused or None
