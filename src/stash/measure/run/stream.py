"""What leaves the training process: the leader's trace, every rank's heartbeat, and where the launchers meet.

All of it goes through small files in the run's folder, one writer each; nothing here waits for anybody.
"""

from __future__ import annotations

import json
import os
import struct
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from stash.measure.run.orders import Plan

T = TypeVar("T")


class Trace:
    """Append-only JSON lines; each is written whole, so a killed run leaves every finished one readable."""

    def __init__(self, plan: Plan) -> None:
        self._path = plan.trace
        self._descriptor: int | None = None

    def write(self, kind: str, **fields: Any) -> None:
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(self._descriptor, (json.dumps({"kind": kind, **fields}) + "\n").encode())


class Heart:
    """A small file per rank that tells the launcher how far it got: pid, steps, time of the last one."""

    FORMAT = "qqd"

    def __init__(self, plan: Plan) -> None:
        self._folder = plan.folder
        self._descriptor: int | None = None

    def beat(self, rank: int, steps: int) -> None:
        if self._descriptor is None:
            path = os.path.join(self._folder, f"beat.{rank}.{os.getpid()}")
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        os.pwrite(self._descriptor, struct.pack(self.FORMAT, os.getpid(), steps, time.time()), 0)


@dataclass(frozen=True)
class Offer:
    """Where a launcher listens for others: a UDP port, and the word by which it knows them."""

    port: int
    token: str

    def write(self, folder: Path) -> None:
        (folder / "offer.json").write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> Offer | None:
        """The offer of the launcher whose folder this is; None if it made none."""
        return _read(cls, folder / "offer.json")


@dataclass(frozen=True)
class Meeting:
    """Where all launchers of a job over several nodes meet: at that of rank 0. ``node`` is the reader's own."""

    host: str
    port: int
    token: str
    node: int

    def write(self, folder: Path) -> bool:
        """Write it for this folder's launcher; False if another rank did so before."""
        try:
            with (folder / "meeting.json").open("x") as file:
                file.write(json.dumps(asdict(self)))
        except FileExistsError:
            return False
        return True

    @classmethod
    def read(cls, folder: Path) -> Meeting | None:
        """None until a rank wrote it whole."""
        return _read(cls, folder / "meeting.json")


class Copy:
    """The leader's trace, carried to every other node with the leader's decisions: it outlives the leader's node.

    The leader's side reads what was added to the file; on another node, one rank of each folder appends it.
    """

    def __init__(self, plan: Plan, writes: bool) -> None:
        self._source, self._target = plan.trace, copy_path(Path(plan.folder))
        self._writes, self._at = writes, 0

    def news(self) -> bytes:
        """What the leader streamed since the last call."""
        try:
            with self._source.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return b""
        self._at += len(data)
        return data

    def take(self, news: bytes) -> None:
        """Add what came from the leader."""
        if self._writes and news:
            with self._target.open("ab") as file:
                file.write(news)


def copy_path(folder: Path) -> Path:
    """Where a node that does not lead keeps the leader's trace."""
    return folder / "copy.jsonl"


def _read(kind: type[T], path: Path) -> T | None:
    try:
        return kind(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
