"""Who takes part in a training on machines that come and go: one state machine for heads and rehearsals.

A member starts, trains, may have notice, and is done or gone; every change is one of ``_NEXT``. Events
in, states out: it knows no clock, no machine and no process, and decides nothing about who comes instead.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Generic, TypeVar

DESERTED_SECONDS = 1800.0
"""Without any member, until a rented head ends too, and its machine with it: nobody may be left who would end it."""


class MemberState(enum.Enum):
    """What is known of one member."""

    STARTING = "starting"
    """Its machine is there or on its way, and it has not joined."""
    TRAINING = "training"
    LEAVING = "leaving"
    """It has notice: it is not counted on from now on, but it is still there."""
    DONE = "done"
    """It ended in order; its machine may still be there."""
    GONE = "gone"


_NEXT = {
    MemberState.STARTING: {MemberState.TRAINING, MemberState.LEAVING, MemberState.DONE, MemberState.GONE},
    MemberState.TRAINING: {MemberState.LEAVING, MemberState.DONE, MemberState.GONE},
    MemberState.LEAVING: {MemberState.DONE, MemberState.GONE},
    MemberState.DONE: {MemberState.GONE},
    MemberState.GONE: set[MemberState](),
}
"""What may follow each state."""


@dataclass
class FleetMember:
    """One machine's part in a training."""

    name: str
    type: str | None = None
    """Of its machine."""
    state: MemberState = MemberState.STARTING
    since: float = 0.0
    """When it came into that state."""
    joined: bool = False
    """Whether it ever trained."""
    replaced: bool = False
    """Whether another one was asked for instead."""

    def becomes(self, state: MemberState, now: float) -> None:
        """Raises ValueError for a change that cannot be."""
        if state is self.state:
            return
        if state not in _NEXT[self.state]:
            raise ValueError(f"{self.name} is {self.state.value}, and cannot be {state.value} next")
        self.state, self.since = state, now

    @property
    def ended(self) -> bool:
        return self.state in (MemberState.DONE, MemberState.GONE)

    @property
    def stays(self) -> bool:
        """Whether it is counted on."""
        return not self.ended and self.state is not MemberState.LEAVING


M = TypeVar("M", bound=FleetMember)


class Members(dict[str, M], Generic[M]):
    """All there ever were, by name, in the order in which they were asked for.

    What an event changed is returned; ``None``: it was of an unknown member, or nothing new.
    """

    def add(self, member: M) -> M:
        """One more, or another machine under the name of one that ended."""
        self.pop(member.name, None)
        self[member.name] = member
        return member

    def join(self, name: str, now: float) -> M | None:
        """Record that it trains; of one that has notice, that is known already."""
        member = self.get(name)
        if member is None or not member.stays:
            return None
        member.becomes(MemberState.TRAINING, now)
        member.joined = True
        return member

    def notice(self, name: str, now: float) -> M | None:
        """Record that its machine will be taken away."""
        member = self.get(name)
        if member is None or not member.stays:
            return None
        member.becomes(MemberState.LEAVING, now)
        return member

    def finish(self, name: str, now: float) -> M | None:
        """Record that it ended in order."""
        return self._end(name, MemberState.DONE, now)

    def lose(self, name: str, now: float) -> M | None:
        """Record that its machine is gone, whatever it was doing."""
        return self._end(name, MemberState.GONE, now)

    def _end(self, name: str, state: MemberState, now: float) -> M | None:
        member = self.get(name)
        if member is None or state not in _NEXT[member.state]:
            return None
        member.becomes(state, now)
        return member

    @property
    def there(self) -> tuple[str, ...]:
        """Names of those that have not ended."""
        return tuple(name for name, member in self.items() if not member.ended)

    def called(self, who: str) -> list[str]:
        """Names of those that train and are called so, or are of that type."""
        here = (MemberState.TRAINING, MemberState.LEAVING)
        return sorted(each.name for each in self.values() if each.state in here and who in (each.name, each.type))
