"""Who takes part in a training on machines that come and go: one state machine for heads and rehearsals.

A member starts, trains, may have notice, and is done or gone. Events in, states out: it knows no clock, no machine
and no process, and decides nothing about who comes instead.
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


@dataclass
class FleetMember:
    """One machine's part in a training."""

    name: str
    type: str | None = None
    """Of its machine."""
    state: MemberState = MemberState.STARTING
    joined: bool = False
    """Whether it ever trained."""
    replaced: bool = False
    """Whether another one was asked for instead."""

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

    Events of unknown members change nothing, nor do those of members that have ended.
    """

    def add(self, member: M) -> None:
        """One more, or another machine under the name of one that ended."""
        self.pop(member.name, None)
        self[member.name] = member

    def join(self, name: str) -> None:
        """Record that it trains; one that has notice keeps that."""
        member = self.get(name)
        if member is not None and not member.ended:
            member.joined = True
            if member.stays:
                member.state = MemberState.TRAINING

    def notice(self, name: str) -> None:
        """Record that its machine will be taken away."""
        if name in self.there:
            self[name].state = MemberState.LEAVING

    def finish(self, name: str) -> None:
        """Record that it ended in order."""
        if name in self.there:
            self[name].state = MemberState.DONE

    def lose(self, name: str) -> None:
        """Record that its machine is gone, whatever it was doing."""
        if name in self:
            self[name].state = MemberState.GONE

    @property
    def there(self) -> tuple[str, ...]:
        """Names of those that have not ended."""
        return tuple(name for name, member in self.items() if not member.ended)

    def called(self, who: str) -> list[str]:
        """Names of those that train and are called so, or are of that type."""
        here = (MemberState.TRAINING, MemberState.LEAVING)
        return sorted(each.name for each in self.values() if each.state in here and who in (each.name, each.type))
