"""Where anything runs that a study or a rented fleet starts, and what is rented for it: one way for all of it.

Work on this machine, Slurm or a cloud is described first, as a ``Submission``: files, a command of this
machine that lasts as long as the work does, and the commands that end what was rented. ``JobBackend`` starts and ends
it and looks after the leases: each is in the journal before a cloud is asked, and over only when the cloud says that
it is gone. So whatever kills a controller, the next one knows what may still cost money.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from stash.core.printable import printable_line
from stash.study.programs import SystemPrograms, exit_code, is_gone
from stash.study.status import HOUR
from stash.study.study_folder import CellFolder, Renter, StudyEvent, StudyFolder, append

ProgramWords = tuple[str, ...]
_LEASE = re.compile(r"stash-[a-z0-9-]+")
"""What studies call whatever they rent: nothing else is ended."""
_TRIES = 3
_PAUSE = 5.0
"""Seconds between two tries."""
_PATIENCE = 900.0
"""Seconds for a command of a cloud: taking machines down takes minutes."""


def _release_commands(renter: Renter, lease: str) -> tuple[ProgramWords, ...]:
    """The commands that end a lease: from here, since a journal may come from somebody else."""
    if not _LEASE.fullmatch(lease):
        return ()
    commands: dict[Renter, ProgramWords] = {
        "slurm": ("scancel", f"--name={lease}"),
        "sky": ("sky", "down", "--yes", lease),
    }
    return (commands[renter],) if renter else ()


def _check_command(renter: Renter, lease: str) -> ProgramWords:
    """The command that names a lease as long as it is there."""
    if renter == "slurm":
        return ("squeue", "--noheader", "--format=%j %T %r", f"--name={lease}")
    return ("sky", "status", "--refresh", lease) if renter == "sky" else ()


@dataclass(frozen=True)
class Submission:
    """What it takes to have one piece of work done; starts nothing."""

    files: Mapping[str, str]
    """What is written into the cell's folder first, by name."""
    command: ProgramWords
    """Ends when the cell does, with its exit code."""
    lane: str
    """Of one lane, one cell runs at a time."""
    lease: str
    """What is rented for it; cells that follow each other in a lane may share one."""
    fetch: tuple[ProgramWords, ...] = ()
    """Brings the profile into the cell's folder."""
    rented_from: Renter = ""
    waits: str = field(default="", repr=False)
    """A regular expression: what ``check`` says of something that has yet to begin; nobody pays for it until then."""
    hopeless: str = field(default="", repr=False)
    """A regular expression: what ``check`` says of something that waits and will never begin, its first group why;
    empty: nothing says so.
    """
    lost: str = field(default="", repr=False)
    """A regular expression: what is printed when machines were taken away, which is not the cell's fault."""

    @property
    def release(self) -> tuple[ProgramWords, ...]:
        """Ends the lease, and whatever still runs on it; does no harm where it has ended."""
        return _release_commands(self.rented_from, self.lease)

    @property
    def check(self) -> ProgramWords:
        """Names the lease on a line of its own as long as it is there; empty where nothing does."""
        return _check_command(self.rented_from, self.lease)

    def put(self, cell: CellFolder) -> None:
        """Write its files where its commands look for them; raises OSError."""
        cell.path.mkdir(parents=True, exist_ok=True)
        for name, text in self.files.items():
            (cell.path / name).write_text(text)

    def describe(self) -> str:
        """Everything that is written and run, in order, as one could do it by hand."""
        parts = [f"# {name}\n{text.rstrip()}" for name, text in self.files.items()]
        commands = [self.command, *self.fetch, *self.release]
        return "\n".join([*parts, *(f"$ {shlex.join(words)}" for words in commands)])

    def document(self) -> dict[str, Any]:
        """The same for programs."""
        fetch, release = ([list(words) for words in commands] for commands in (self.fetch, self.release))
        return {"files": dict(self.files), "command": list(self.command), "fetch": fetch, "release": release}


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
    """When that was."""

    @property
    def release(self) -> tuple[ProgramWords, ...]:
        """As of its ``Submission``."""
        return _release_commands(self.rented_from, self.name)

    @property
    def check(self) -> ProgramWords:
        """As of its ``Submission``."""
        return _check_command(self.rented_from, self.name)

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
            leases[event.lease] = OpenLease(event.lease, event.at, event.dollars_per_hour, event.rented_from)
        elif event.what == "released":
            leases.pop(event.lease, None)
        elif event.lease in leases:
            cell = event.cell if event.what == "started" else ""
            leases[event.lease] = replace(leases[event.lease], cell=cell, began=event.at)
    return tuple(leases.values())


def spent(events: Iterable[StudyEvent]) -> float:
    """Dollars of everything that was released."""
    return sum(event.dollars or 0.0 for event in events if event.what == "released")


@dataclass
class JobBackend:
    """Starts work by name, asks how it is, ends it, and knows what it costs."""

    folder: StudyFolder
    programs: SystemPrograms
    spent: float = 0.0
    """Dollars of leases that are closed, earlier runs' included."""
    left: list[str] = field(default_factory=list)
    """What could not be seen to end, a sentence each."""
    leases: dict[str, OpenLease] = field(default_factory=dict)
    """Those that are open, by name."""

    def open(self, name: str, submission: Submission, dollars_per_hour: float | None) -> None:
        """Write its files, and into the journal what is about to be rented; raises OSError."""
        cell = self.cell(name)
        for stale in (cell.profile, cell.status, cell.process):  # before the journal says that there is a new try
            stale.unlink(missing_ok=True)
        submission.put(cell)
        if submission.lease in self.leases:
            return
        now, lease = self.programs.now(), submission.lease
        renter = submission.rented_from
        self.write(
            StudyEvent(at=now, what="opened", lease=lease, dollars_per_hour=dollars_per_hour, rented_from=renter)
        )
        self.adopt(OpenLease(lease, now, dollars_per_hour, renter))

    def start(self, name: str, submission: Submission) -> None:
        """Start what was opened; returns at once. Raises OSError."""
        self.programs.start(submission.command, self.folder.work, self.cell(name))

    def write(self, event: StudyEvent) -> None:
        """Put an event into the journal; raises OSError."""
        append(self.folder.journal, event)

    def alive(self, name: str) -> bool:
        """Whether the command of that name still runs, whoever started it."""
        return self.programs.alive(self.cell(name))

    def code(self, name: str) -> int | None:
        """Its exit code; ``None`` if something ended it before it could end."""
        return exit_code(self.cell(name))

    def cell(self, name: str) -> CellFolder:
        """What it has printed and left."""
        return self.folder.cell(name)

    def kill(self, name: str) -> None:
        """End it and all that it has started here; its lease stays open."""
        self.programs.kill(self.cell(name))

    def adopt(self, lease: OpenLease) -> None:
        """Take on what an earlier controller has opened."""
        self.leases[lease.name] = lease

    def waits(self, name: str) -> None:
        """A lease has yet to begin: it is paid from now on at the earliest."""
        if name in self.leases:
            self.leases[name] = replace(self.leases[name], opened=self.programs.now())

    @property
    def dollars(self) -> float:
        """Spent until now, what is still open included."""
        now = self.programs.now()
        return self.spent + sum(lease.cost(now) for lease in self.leases.values())

    def release(self, name: str) -> None:
        """End a lease; one that cannot be ended stays open in the journal, and is named in ``left``."""
        lease = self.leases.get(name)
        if lease is not None:
            self._close(lease, self._end(lease))

    def release_all(self) -> None:
        for name in list(self.leases):
            self.release(name)

    def _close(self, lease: OpenLease, why: str | None) -> None:
        """``why``: it may still be there."""
        del self.leases[lease.name]
        now = self.programs.now()
        self.spent += lease.cost(now)
        if why is not None:
            self.left.append(why)
            return
        dollars = None if lease.dollars_per_hour is None else lease.cost(now)
        with suppress(OSError):  # then the next controller releases it once more, which does no harm
            self.write(
                StudyEvent(at=now, what="released", lease=lease.name, seconds=lease.seconds(now), dollars=dollars)
            )

    def _end(self, lease: OpenLease) -> str | None:
        """End it; why it may still be there, if it may."""
        if not lease.release:
            return None
        output = ""
        for number in range(_TRIES):
            if number:
                self.programs.sleep(_PAUSE)
            called = [self.programs.call(words, _PATIENCE) for words in lease.release]
            output = called[-1].output
            if lease.check:
                seen = self.programs.call(lease.check, _PATIENCE)
                if seen.code == 0 and is_gone(seen.output, lease.name):
                    return None
                output = output if seen.code == 0 else seen.output
            elif all(each.code == 0 for each in called):
                return None
        how = " and ".join(" ".join(words) for words in lease.release)
        last = printable_line((output.strip().splitlines() or ["it printed nothing"])[-1], 200)
        return f"{lease.name} may still be running: {last}; type `{how}`, or the same command again"
