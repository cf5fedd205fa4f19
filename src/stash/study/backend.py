"""What is rented for cells, wherever they run: opened, paid and released, one way for all of it.

A piece of work is described first, as a ``Submission``: files, a command of this machine that lasts as long as the
work does, and what is rented for it. A lease is in the journal before a cloud is asked, and over only when the cloud
says that it is gone. So whatever kills a controller, the next one knows what may still cost money.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from stash.core.printable import printable_line
from stash.study.programs import SystemPrograms, is_gone
from stash.study.status import HOUR
from stash.study.study_folder import CellFolder, Renter, StudyEvent, append_event

ProgramWords = tuple[str, ...]
_LEASE = re.compile(r"stash-[a-z0-9-]+")
"""What studies call whatever they rent: nothing else is ended."""
_TRIES = 3
_PAUSE = 5.0
"""Seconds between two tries."""
_PATIENCE = 900.0
"""Seconds for a command of a cloud: taking machines down takes minutes."""


def release_command(renter: Renter, lease: str) -> ProgramWords:
    """What ends a lease: from here, since a journal may come from somebody else; empty where nothing is to end."""
    if not renter or not _LEASE.fullmatch(lease):
        return ()
    return ("scancel", f"--name={lease}") if renter == "slurm" else ("sky", "down", "--yes", lease)


def check_command(renter: Renter, lease: str) -> ProgramWords:
    """What names a lease at the beginning of a line as long as it is there."""
    if renter == "slurm":
        return ("squeue", "--noheader", "--format=%j %T", f"--name={lease}")
    return ("sky", "status", "--refresh", lease)


@dataclass(frozen=True)
class Submission:
    """What it takes to have one piece of work done; starts nothing."""

    files: Mapping[str, str]
    """What is written into the cell's folder first, by name."""
    command: ProgramWords
    """Ends when the cell does, with its exit code."""
    lease: str
    """What is rented for it; cells that follow each other in a lane may share one."""
    rented_from: Renter = ""
    fetch: ProgramWords = ()
    """Brings the profile into the cell's folder; empty where it is written there."""
    lost: str = field(default="", repr=False)
    """A regular expression: what is printed when machines were taken away, which is not the cell's fault."""

    def write_files(self, cell: CellFolder) -> None:
        """Write its files where its commands look for them; raises OSError."""
        cell.path.mkdir(parents=True, exist_ok=True)
        for name, text in self.files.items():
            (cell.path / name).write_text(text)

    def describe(self) -> str:
        """Everything that is written and run, in order, as one could do it by hand."""
        parts = [f"# {name}\n{text.rstrip()}" for name, text in self.files.items()]
        commands = (self.command, self.fetch, release_command(self.rented_from, self.lease))
        return "\n".join([*parts, *(f"$ {shlex.join(words)}" for words in commands if words)])


@dataclass(frozen=True)
class OpenLease:
    """Something rented that was not seen to end."""

    name: str
    opened: float
    """Seconds since 1970."""
    dollars_per_hour: float | None
    """``None``: not paid for by time."""
    rented_from: Renter = ""
    cell: str = ""
    """The cell that was last started there, and did not end."""
    began: float = 0.0

    def seconds(self, now: float) -> float:
        """Since it was opened; none if the clock was set back between two runs."""
        return max(0.0, now - self.opened)

    def cost(self, now: float) -> float:
        """Dollars until now."""
        return (self.dollars_per_hour or 0.0) * self.seconds(now) / HOUR


def open_leases(events: Iterable[StudyEvent]) -> tuple[OpenLease, ...]:
    """Find the leases that the journal has as opened and not released, in the order in which they were opened."""
    leases: dict[str, OpenLease] = {}
    for event in events:
        if event.what == "opened":
            leases[event.lease] = OpenLease(
                event.lease, event.at, event.dollars_per_hour, event.rented_from
            )
        elif event.what == "released":
            leases.pop(event.lease, None)
        elif event.lease in leases:
            cell = event.cell if event.what == "started" else ""
            leases[event.lease] = replace(leases[event.lease], cell=cell, began=event.at)
    return tuple(leases.values())


def spent_dollars(events: Iterable[StudyEvent]) -> float:
    """Dollars of everything that was released."""
    return sum(event.dollars or 0.0 for event in events if event.what == "released")


@dataclass
class Leases:
    """What is open, what it costs, and how it ends."""

    journal: Path
    programs: SystemPrograms
    spent: float = 0.0
    """Dollars of leases that are closed, earlier runs' included."""
    left: list[str] = field(default_factory=list)
    """What could not be seen to end, a sentence each."""
    opened: dict[str, OpenLease] = field(default_factory=dict)
    """By name."""

    def open_lease(self, submission: Submission, dollars_per_hour: float | None) -> None:
        """Write into the journal what is about to be rented, unless it is open already; raises OSError."""
        if submission.lease not in self.opened:
            event = StudyEvent(
                at=self.programs.now(),
                what="opened",
                lease=submission.lease,
                dollars_per_hour=dollars_per_hour,
                rented_from=submission.rented_from,
            )
            append_event(self.journal, event)
            self.opened.update((lease.name, lease) for lease in open_leases([event]))

    @property
    def dollars(self) -> float:
        """Spent until now, what is still open included."""
        now = self.programs.now()
        return self.spent + sum(lease.cost(now) for lease in self.opened.values())

    def release(self, name: str) -> None:
        """End a lease; one that cannot be ended stays open in the journal, and is named in ``left``."""
        lease = self.opened.get(name)
        if lease is None:
            return
        why = self._end(lease)
        del self.opened[name]
        now = self.programs.now()
        self.spent += lease.cost(now)
        if why is not None:
            self.left.append(why)
            return
        dollars = None if lease.dollars_per_hour is None else lease.cost(now)
        with suppress(
            OSError
        ):  # then the next controller releases it once more, which does no harm
            event = StudyEvent(
                at=now, what="released", lease=name, seconds=lease.seconds(now), dollars=dollars
            )
            append_event(self.journal, event)

    def release_all(self) -> None:
        for name in list(self.opened):
            self.release(name)

    def _end(self, lease: OpenLease) -> str | None:
        """End it; why it may still be there, if it may."""
        words = release_command(lease.rented_from, lease.name)
        output = ""
        if not words:
            return None
        for number in range(_TRIES):
            if number:
                self.programs.sleep(_PAUSE)
            called = self.programs.call(words, _PATIENCE)
            seen = self.programs.call(check_command(lease.rented_from, lease.name), _PATIENCE)
            if seen.code == 0 and is_gone(seen.output, lease.name):
                return None
            output = called.output if seen.code == 0 else seen.output
        last = printable_line((output.strip().splitlines() or ["it printed nothing"])[-1], 200)
        return f"{lease.name} may still be running: {last}; type `{' '.join(words)}`, or the same command again"
