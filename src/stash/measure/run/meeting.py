"""How the launchers of a job over several nodes find each other: three small files in each launch's folder.

Ranks that find themselves on several nodes say so, and where their launcher is to listen; before that, it opens
nothing. It answers with an invitation, and the ranks, who know each other already, carry that of rank 0's launcher to
the others' folders as the meeting. Nothing here opens a connection.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from stash.measure.run.folder import RunFolder
from stash.measure.run.wire import crosses

T = TypeVar("T")


@dataclass(frozen=True)
class Neighbours:
    """What the ranks tell their launcher: the number of this node, and its address on the way to the others."""

    node: int
    address: str

    def write(self, folder: RunFolder) -> bool:
        """Write it for this folder's launcher; False if another rank did so before."""
        return _write(self, folder.neighbours)

    @classmethod
    def read(cls, folder: RunFolder) -> Neighbours | None:
        """None until a rank wrote it whole."""
        return _read(cls, folder.neighbours)


@crosses
@dataclass(frozen=True)
class Invitation:
    """Where a launcher listens for others, by UDP, and the key by which it knows them."""

    host: str
    port: int
    key: str

    def write(self, folder: RunFolder) -> None:
        """For the ranks of this folder."""
        draft = folder.invitation.with_suffix(".new")
        draft.write_text(json.dumps(asdict(self)))
        draft.rename(folder.invitation)

    def bring(self, folder: RunFolder) -> bool:
        """Write it as the meeting, for this folder's launcher; False if another rank did so before."""
        return _write(self, folder.meeting)

    @classmethod
    def of(cls, folder: RunFolder) -> Invitation | None:
        """That of the launcher whose folder this is; None if it made none."""
        return _read(cls, folder.invitation)

    @classmethod
    def brought(cls, folder: RunFolder) -> Invitation | None:
        """That of rank 0's launcher; None until a rank brought it."""
        return _read(cls, folder.meeting)


def _write(record: Neighbours | Invitation, path: Path) -> bool:
    try:
        with path.open("x") as file:
            file.write(json.dumps(asdict(record)))
    except FileExistsError:
        return False
    return True


def _read(kind: type[T], path: Path) -> T | None:
    try:
        return kind(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
