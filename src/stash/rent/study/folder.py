"""The folder of a study: where each of its files is, and the lock that keeps a second controller out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stash.base.errors import UserError
from stash.base.records import SUFFIX
from stash.measure.run.locks import lock

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
    command: str = "stash characterize"
    """Which one runs it."""

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

    @property
    def probes(self) -> Path:
        """What was measured of machines, for all cells there."""
        return self.path / "probes"

    def cell(self, id: str) -> CellFolder:
        return CellFolder(self.path / "cells" / id)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make it, and be the only one who runs the study; raises UserError where another does."""
        try:
            (self.path / "cells").mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UserError(f"cannot make the folder {self.path}: {error.strerror}") from error
        try:
            if lock(descriptor) is False:
                raise UserError(f"{self.path} is being run by another `{self.command}`; wait for it, or end it")
            yield
        finally:
            os.close(descriptor)


def of_study(file: Path) -> StudyFolder:
    """``grid.yaml`` has ``grid.study`` beside it."""
    whole = file.resolve()
    return StudyFolder(whole.with_name(f"{whole.name.split('.')[0]}.study"), whole.parent)
