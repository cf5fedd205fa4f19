"""A cell, described: the files and commands by which an engine has it done, before anything is started.

An engine only describes. Its command runs until the cell is over, whatever runs it where, so that one controller does
all of them alike: starts it, waits, fetches, releases.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from stash.core.files import write_whole
from stash.core.units import format_bytes
from stash.study.cells import Cell
from stash.study.study_folder import CellFolder, StudyFolder

ProgramWords = tuple[str, ...]


@dataclass(frozen=True)
class Submission:
    """What it takes to have one cell done."""

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
    release: tuple[ProgramWords, ...] = ()
    """Ends the lease, and whatever still runs on it; does no harm where it has ended."""
    check: ProgramWords = ()
    """Names the lease on a line of its own as long as it is there."""
    hopeless: str = field(default="", repr=False)
    """A regular expression: what ``check`` says of something that waits and will never begin, its first group why;
    empty: nobody asks.
    """
    lost: str = field(default="", repr=False)
    """A regular expression: what is printed when machines were taken away, which is not the cell's fault."""
    shared: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """What lies in the study's folder for all cells, by a name that says its content."""

    def put(self, folder: StudyFolder, cell: CellFolder) -> None:
        """Write its files where its commands look for them; raises OSError."""
        cell.path.mkdir(parents=True, exist_ok=True)
        for name, text in self.files.items():
            (cell.path / name).write_text(text)
        for name, content in self.shared.items():
            if not (folder.path / name).exists():
                write_whole(folder.path / name, content)

    def describe(self) -> str:
        """Everything that is written and run, in order, as one could do it by hand."""
        parts = [f"# {name}: {format_bytes(len(content))}" for name, content in self.shared.items()]
        parts += [f"# {name}\n{text.rstrip()}" for name, text in self.files.items()]
        commands = [self.command, *self.fetch, *self.release]
        return "\n".join([*parts, *(f"$ {shlex.join(words)}" for words in commands)])


class StudyEngine(Protocol):
    """One way to have cells done; knows no machine but by what it describes."""

    def __call__(self, cell: Cell, folder: StudyFolder) -> Submission:
        """How this cell is done; raises UserError for what cannot be."""
