"""A clock for whatever takes one."""

from __future__ import annotations


class Clock:
    """Time that passes only when it is advanced."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def act(self, seconds: float) -> float:
        self.now += seconds
        return seconds
