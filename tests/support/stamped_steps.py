"""Steps stamped by a clock that tests move on."""

from collections.abc import Callable

from stash.measure.protocol.stamped import StampedStep

Step = Callable[[Callable[[], object]], StampedStep]
"""Stamps one step in which that is done."""


class Seconds:
    """A clock that copies, and whoever else takes time, move on."""

    now = 0.0

    def __call__(self):
        return self.now
