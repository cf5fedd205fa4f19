"""The script's optimizers: which one's steps are the job's, and which one takes its place.

Scripts replace them: a new one for every epoch, for every fold of a cross-validation, for a second stage of
training. They are known by weak references, and none is kept alive. What is decided follows from the order of steps
alone, never from when a replaced one is collected, which differs from rank to rank.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from stash.measure.agent import script

_MAX_KNOWN = 32


class SeenOptimizer:
    """An optimizer, and when it stepped among all of the script's."""

    def __init__(self, optimizer: Any, now: int) -> None:
        self.steps = 0
        self.at_once = False
        """It took another's place with its first step."""
        self._first = self.last = now
        self.passes = 0
        """How many backward passes there had been when it stepped last."""
        self.optimizer = weakref.ref(optimizer)
        """The optimizer itself when it is called; ``None`` once the script has let go of it."""
        groups = getattr(optimizer, "param_groups", [])
        parameters = [parameter for group in groups for parameter in group["params"]]
        self._parameters = [weakref.ref(parameter) for parameter in parameters]
        self.trains: int = sum(
            parameter.numel() for parameter in parameters if parameter.requires_grad
        )
        """How many numbers it trains."""

    def note_step(self, now: int) -> None:
        """It steps, as the step number ``now`` of all."""
        self.steps += 1
        self.last, self.passes = now, script.bus.passes

    def take_place(self) -> SeenOptimizer:
        """It takes another's with its first step."""
        self.at_once = True
        return self

    @property
    def parameters(self) -> list[Any]:
        """Those that are still there."""
        return [parameter for each in self._parameters if (parameter := each()) is not None]

    def is_overdue(self, now: int) -> bool:
        """Whether it has not stepped for twice as long as usual; of a single step: as until that."""
        usual = self._first if self.steps == 1 else (self.last - self._first) / (self.steps - 1)
        return now - self.last > 2 * usual

    def shares_parameters(self, other: SeenOptimizer) -> bool:
        """Whether both train some of the same parameters."""
        return not {id(parameter) for parameter in self.parameters}.isdisjoint(
            map(id, other.parameters)
        )


class Optimizers:
    """Those that have stepped, the latest last."""

    def __init__(self) -> None:
        self._known: list[SeenOptimizer] = []
        self._latest: SeenOptimizer | None = None
        self._now = 0

    def note_step(self, optimizer: Any) -> SeenOptimizer:
        """Note a step; the value says whose it is."""
        self._now = now = self._now + 1
        own = self._latest
        if own is None or own.optimizer() is not optimizer:  # nearly always it is the same one
            own = next((each for each in self._known if each.optimizer() is optimizer), None)
            if own is None:
                own = SeenOptimizer(optimizer, now)
                if len(self._known) > _MAX_KNOWN:
                    self._known = self._list_current()
                self._known.append(own)
            self._latest = own
        own.note_step(now)
        return own

    def _list_current(self) -> list[SeenOptimizer]:
        return [each for each in self._known if not each.is_overdue(self._now)]

    def lacks_any(self, there: Iterable[Any]) -> bool:
        """Whether any of those that are ``there`` has not stepped yet."""
        stepped = {id(each.optimizer()) for each in self._known}
        return any(id(optimizer) not in stepped for optimizer in there)

    def find_rarest(self) -> SeenOptimizer:
        """Of those that step now, the one that does least often; ties keep the first."""
        return min(self._list_current(), key=lambda each: each.steps)

    def count_trained(self) -> int:
        """How many numbers those that step now train together, each counted once."""
        all_of_them = (parameter for each in self._list_current() for parameter in each.parameters)
        return sum({id(one): one.numel() for one in all_of_them if one.requires_grad}.values())

    def find_successor(self, counted: SeenOptimizer) -> SeenOptimizer | None:
        """Which one takes the place of the one whose steps were counted, now that another has stepped; often none.

        A new one of the same parameters does so at once, unless both step after one backward pass (an optimizer
        within another); one of other parameters may as well be a second one beside it (GANs), until the first is
        overdue.
        """
        new = self._latest
        assert new is not None
        if new.steps == 1 and new.shares_parameters(counted) and new.passes > counted.passes:
            return new.take_place()
        return self.find_rarest() if counted.is_overdue(self._now) else None
