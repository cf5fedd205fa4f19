"""What a study has rented, what that has cost, and how it ends: every lease that was opened is released, or named.

A lease is written down before anything is asked of a cloud, and is over only when the cloud says that it is gone.
So whatever kills a controller, the next one knows what may still cost money.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from stash.core.printable import printable_line
from stash.study.programs import Programs, is_gone
from stash.study.status import HOUR, OpenLease
from stash.study.study_folder import StudyEvent
from stash.study.submission import Submission

TRIES = 3
_PAUSE = 5.0
"""Seconds between two tries."""
_PATIENCE = 900.0
"""Seconds for a command of a cloud: taking machines down takes minutes."""
Write = Callable[[StudyEvent], None]


@dataclass
class Leases:
    """Those that are open; ``spent`` is what the closed ones cost, earlier runs' included."""

    programs: Programs
    write: Write
    spent: float = 0.0
    left: list[str] = field(default_factory=list)
    """What could not be seen to end, a sentence each."""
    _open: dict[str, OpenLease] = field(default_factory=dict)

    def adopt(self, lease: OpenLease) -> None:
        """Take on what an earlier controller has opened."""
        self._open[lease.name] = lease

    def open(self, submission: Submission, dollars_per_hour: float | None) -> None:
        """Write a lease down, unless it is open already; ``None``: it is not paid for by time."""
        if submission.lease in self._open:
            return
        lease = OpenLease(
            submission.lease, self.programs.now(), dollars_per_hour, submission.release, submission.check
        )
        self.write(
            StudyEvent(
                at=lease.opened, what="opened", lease=lease.name, dollars_per_hour=lease.dollars_per_hour,
                release=lease.release, check=lease.check,
            )
        )  # fmt: skip
        self.adopt(lease)

    def is_open(self, name: str) -> bool:
        return name in self._open

    @property
    def names(self) -> tuple[str, ...]:
        """Of those that are open."""
        return tuple(self._open)

    @property
    def dollars_per_hour(self) -> float:
        """Of all that are open."""
        return sum(lease.dollars_per_hour or 0.0 for lease in self._open.values())

    @property
    def dollars(self) -> float:
        """Spent until now, what is still open included."""
        now = self.programs.now()
        return self.spent + sum(_cost(lease, now) for lease in self._open.values())

    def release(self, name: str) -> None:
        """End a lease; one that cannot be ended stays open in the journal, and is told in ``left``."""
        lease = self._open.get(name)
        if lease is None:
            return
        why = self._ended(lease)
        self._close(lease, why)

    def seen_gone(self, name: str) -> None:
        """A lease that the cloud no longer names is over without being released."""
        if name in self._open:
            self._close(self._open[name], None)

    def _close(self, lease: OpenLease, why: str | None) -> None:
        """``why``: it may still be there."""
        del self._open[lease.name]
        now = self.programs.now()
        self.spent += _cost(lease, now)
        if why is not None:
            self.left.append(why)
            return
        dollars = None if lease.dollars_per_hour is None else _cost(lease, now)
        with suppress(OSError):  # then the next controller releases it once more, which does no harm
            self.write(
                StudyEvent(at=now, what="released", lease=lease.name, seconds=_seconds(lease, now), dollars=dollars)
            )

    def release_all(self) -> None:
        for name in list(self._open):
            self.release(name)

    def _ended(self, lease: OpenLease) -> str | None:
        """End it; why it may still be there, if it may."""
        if not lease.release:
            return None
        output = ""
        for number in range(TRIES):
            if number:
                self.programs.sleep(_PAUSE)
            called = [self.programs.call(words, _PATIENCE) for words in lease.release]
            output = called[-1].output
            if lease.check:
                seen = self.programs.call(lease.check, _PATIENCE)
                if seen.code == 0 and is_gone(lease.check, seen.output, lease.name):
                    return None
                output = output if seen.code == 0 else seen.output
            elif all(each.code == 0 for each in called):
                return None
        how = " and ".join(" ".join(words) for words in lease.release)
        last = printable_line((output.strip().splitlines() or ["it said nothing"])[-1], 200)
        return f"{lease.name} may still be running: {last}; type `{how}`, or the same command again"


def _seconds(lease: OpenLease, now: float) -> float:
    """Since it was opened; none if the clock was set back between two runs."""
    return max(0.0, now - lease.opened)


def _cost(lease: OpenLease, now: float) -> float:
    return (lease.dollars_per_hour or 0.0) * _seconds(lease, now) / HOUR
