"""The folder of a study: its files, its lock, and the journal of what became of its cells."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from stash.api import lock_file
from stash.core.errors import UserError
from stash.core.files import read_up_to
from stash.core.jsonl import append_lines, whole_lines
from stash.core.records.base import SUFFIX, Number, Record, Sentence

# The journal of a study: what became of its cells and of what was rented for them, a line each, never changed.
#
# A line is in storage before the next thing is done, so that whoever is killed loses no more than what it was
# doing. What its last line was broken off by is left out. Holds events and draws no conclusions.

_MAX = 2**28
"""Bytes that are read: a cell writes some hundred."""
JournalName = Annotated[str, Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,99})?$")]
"""Of a lease or a cell: a file's name and a command's word, never a path or an option."""
Renter = Literal["", "slurm", "sky"]
"""Who rents a lease out; empty: nobody, it is this machine."""
EventKind = Literal["opened", "started", "ended", "released"]
"""*opened* and *released*: what is paid for by time. *started* and *ended*: a cell, once for each try."""
Ending = Literal["done", "failed", "out of memory", "lost"]
"""*failed*: is not tried again unless asked. *lost*: interrupted, preempted or unreachable; it is tried again."""


class StudyEvent(Record):
    """One line."""

    at: Number
    """Seconds since 1970."""
    what: EventKind
    lease: JournalName = ""
    """What is rented and released as one."""
    cell: JournalName = ""
    """Its id; empty of a lease's own events."""
    ending: Ending | None = None
    why: Sentence = ""
    seconds: Number | None = None
    """Of a cell that ended."""
    dollars: Number | None = None
    """``None``: not paid for by time."""
    dollars_per_hour: Number | None = None
    """Of a lease, all nodes together."""
    rented_from: Renter = ""
    """Of a lease: what ends it, and how, the study knows."""
    artefact: str = ""
    """The profile's name in the study's store; empty where it is in the cell's folder only."""


def read_events(path: Path) -> tuple[StudyEvent, ...]:
    """Read all events, in order; none where there is no journal yet. Raises UserError if it cannot be read."""
    try:
        content = read_up_to(path, _MAX)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise UserError(
            f"cannot read the study's journal {path}: {error.strerror or error}"
        ) from error
    events = []
    for line in whole_lines(content):
        with suppress(ValidationError):  # of no Stash: its writer has done it again or not at all
            events.append(StudyEvent.model_validate_json(line))
    return tuple(events)


def append_event(path: Path, event: StudyEvent) -> None:
    """Put one event into storage; raises OSError."""
    append_lines(path, f"{event.model_dump_json(exclude_defaults=True)}\n".encode(), lasting=True)


# The folder of a study: where each of its files is, and the lock that keeps a second controller out.

PROFILE = f"profile{SUFFIX}"


@dataclass(frozen=True)
class CellFolder:
    """What one cell leaves."""

    path: Path

    @property
    def profile(self) -> Path:
        return self.path / PROFILE

    @property
    def log(self) -> Path:
        """What its command printed."""
        return self.path / "output.log"

    @property
    def status(self) -> Path:
        """Its command's exit code, once it has ended by itself."""
        return self.path / "exit"

    @property
    def process(self) -> Path:
        """The number of its command's process, which leads a group of its own."""
        return self.path / "pid"


@dataclass(frozen=True)
class StudyFolder:
    """All of a study's files but the study itself."""

    path: Path
    work: Path
    """Where commands run: the folder of the study file."""

    @property
    def journal(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def results(self) -> Path:
        return self.path / "results"

    @property
    def models(self) -> Path:
        """What emulated cells train, a file for each model on a GPU."""
        return self.path / "models"

    def cell(self, id: str) -> CellFolder:
        return CellFolder(self.path / "cells" / id)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Make it, and be the only one who runs the study; raises UserError where another does."""
        try:
            (self.path / "cells").mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UserError(f"cannot make the folder {self.path}: {error.strerror}") from error
        try:
            if lock_file(descriptor) is False:
                raise UserError(
                    f"{self.path} is being run by another `stash characterize`; wait for it, or end it"
                )
            yield
        finally:
            os.close(descriptor)


def folder_of_study(file: Path) -> StudyFolder:
    """``grid.study`` for ``grid.yaml``, in the same folder."""
    whole = file.resolve()
    return StudyFolder(whole.with_name(f"{whole.name.split('.')[0]}.study"), whole.parent)
