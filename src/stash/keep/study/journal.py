"""The journal of a study: what became of its cells and of what was rented for them, a line each, never changed.

A line is in storage before the next thing is done, so that whoever is killed loses no more than what it was doing.
What its last line was broken off by is left out. Holds events and draws no conclusions: ``derive/study`` does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from stash.base.errors import UserError
from stash.base.files import read_up_to
from stash.base.records.base import Number, Record, Sentence

_MOST = 2**28
"""Bytes that are read: a cell writes some hundred."""
EventKind = Literal["opened", "started", "ended", "released"]
"""*opened* and *released*: what is paid for by time. *started* and *ended*: a cell, once for each try."""
Ending = Literal["done", "failed", "out of memory", "lost"]
"""*failed*: is not tried again unless asked. *lost*: interrupted, preempted or unreachable; it is tried again."""


class StudyEvent(Record):
    """One line."""

    at: Number
    """Seconds since 1970."""
    what: EventKind
    lease: str = ""
    """What is rented and released as one."""
    cell: str = ""
    """Its id; empty of a lease's own events."""
    ending: Ending | None = None
    why: Sentence = ""
    seconds: Number | None = None
    """Of a cell that ended."""
    dollars: Number | None = None
    """``None``: not paid for by time."""
    dollars_per_hour: Number | None = None
    """Of a lease, all nodes together."""
    release: tuple[tuple[str, ...], ...] = ()
    """The commands that end a lease."""
    check: tuple[str, ...] = ()
    """The command that names it as long as it is there; empty where nothing does."""
    artefact: str = ""
    """The profile's name in the study's store; empty where it is in the cell's folder only."""


def read(path: Path) -> tuple[StudyEvent, ...]:
    """All events, in order; none where there is no journal yet. Raises UserError if it cannot be read."""
    try:
        text = read_up_to(path, _MOST).decode("utf-8", "replace")
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise UserError(f"cannot read the study's journal {path}: {error.strerror or error}") from error
    return tuple(_events(text.splitlines()))


def _events(lines: Iterable[str]) -> Iterable[StudyEvent]:
    for line in lines:
        try:
            yield StudyEvent.model_validate_json(line)
        except ValidationError:
            continue  # broken off when its writer was killed; what it told has happened again or not at all


def append(path: Path, event: StudyEvent) -> None:
    """Put one event into storage; raises OSError."""
    line = event.model_dump_json(exclude_defaults=True) + "\n"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    try:
        end = os.fstat(handle).st_size
        if end and os.pread(handle, 1, end - 1) != b"\n":  # the last writer was killed within a line
            line = "\n" + line
        os.write(handle, line.encode())
        os.fsync(handle)
    finally:
        os.close(handle)
