"""How the launchers of a job over several nodes find each other: two small files in each launch's folder.

Every launcher leaves an invitation; the ranks, who know each other already, carry that of rank 0's launcher to the
others' folders as the meeting. Nothing here opens a connection.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from stash.measure.run.folder import RunFolder

T = TypeVar("T")


@dataclass(frozen=True)
class Invitation:
    """Where a launcher listens for others: a UDP port, and the word by which it knows them."""

    port: int
    token: str

    def write(self, folder: RunFolder) -> None:
        folder.invitation.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: RunFolder) -> Invitation | None:
        """The invitation of the launcher whose folder this is; None if it made none."""
        return _read(cls, folder.invitation)


@dataclass(frozen=True)
class Meeting:
    """Where all launchers of a job over several nodes meet: at that of rank 0. ``node`` is the reader's own."""

    host: str
    port: int
    token: str
    node: int

    def write(self, folder: RunFolder) -> bool:
        """Write it for this folder's launcher; False if another rank did so before."""
        try:
            with folder.meeting.open("x") as file:
                file.write(json.dumps(asdict(self)))
        except FileExistsError:
            return False
        return True

    @classmethod
    def read(cls, folder: RunFolder) -> Meeting | None:
        """None until a rank wrote it whole."""
        return _read(cls, folder.meeting)


def _read(kind: type[T], path: Path) -> T | None:
    try:
        return kind(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
