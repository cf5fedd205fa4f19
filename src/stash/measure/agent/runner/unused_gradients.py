"""Gradients that are computed and cleared without an update: a critic's pass through a generator that is not detached.

They have changed since their optimizer stepped, and another one has stepped meanwhile: what a script reads of gradients
between two backward passes is not known. Followed in a job's first steps, by the smallest parameter of each optimizer
that has a gradient.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from stash.measure.agent import private

_FEWEST = 3
"""Times that gradients are cleared so, until that is how the job trains."""


class _FollowedGradient:
    """One parameter's, of an optimizer that trains ``trains`` numbers."""

    def __init__(self, parameter: Any, trains: int) -> None:
        self.parameter, self.trains = weakref.ref(parameter), trains
        self._used: tuple[Any, int] | None = None
        """It and its version when the optimizer stepped last …"""
        self._at_step = 0
        """… which was so many steps of any."""
        self._times = [0, 0]
        """That it was cleared, and that without an update."""

    def _read(self) -> tuple[Any, int] | None:
        parameter = self.parameter()
        gradient = None if parameter is None else parameter.grad
        return None if gradient is None else (gradient, private.version(gradient))

    def note_step(self, steps: int) -> None:
        """Its optimizer has taken the last of so many ``steps`` of all."""
        self._used, self._at_step = self._read(), steps

    def note_clearing(self, steps: int) -> None:
        """It is about to be cleared, after so many ``steps`` of all optimizers."""
        now, used = self._read(), self._used
        if now is not None and used is not None:
            has_changed = now[0] is not used[0] or now[1] != used[1]
            self._times[0] += 1
            self._times[1] += has_changed and steps > self._at_step

    @property
    def is_unused(self) -> bool:
        """Whether that is so most of the time."""
        cleared, unused = self._times
        return unused >= _FEWEST and 2 * unused > cleared


class UnusedGradients:
    """Those of a script's optimizers."""

    def __init__(self) -> None:
        self._followed: weakref.WeakKeyDictionary[Any, _FollowedGradient] = (
            weakref.WeakKeyDictionary()
        )
        self._steps = 0
        """Of all."""

    def note_step(self, optimizer: Any) -> None:
        """An optimizer of torch.optim stepped."""
        self._steps += 1
        followed = self._followed.get(optimizer)
        if followed is None:
            groups = optimizer.param_groups
            parameters = [each for group in groups for each in group["params"]]
            smallest = min(
                (each for each in parameters if each.grad is not None),
                key=lambda each: each.numel(),
                default=None,
            )
            if smallest is None:
                return
            trains = sum(each.numel() for each in parameters)
            followed = self._followed[optimizer] = _FollowedGradient(smallest, trains)
        followed.note_step(self._steps)

    def note_clearing(self, owner: Any) -> None:
        """Gradients of an optimizer, or of a module, are about to be cleared."""
        for followed in self._find(owner):
            followed.note_clearing(self._steps)

    def _find(self, owner: Any) -> Iterator[_FollowedGradient]:
        own = self._followed.get(owner)
        if own is not None:
            yield own
        elif hasattr(owner, "parameters"):
            known = {id(each.parameter()): each for each in self._followed.values()}
            yield from (known[id(each)] for each in owner.parameters() if id(each) in known)

    def count(self) -> int | None:
        """How many numbers the optimizers train whose gradients are mostly cleared so; ``None`` without any."""
        return sum(each.trains for each in self._followed.values() if each.is_unused) or None
