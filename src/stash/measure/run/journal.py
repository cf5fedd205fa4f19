"""The journal: what the leader measured, one message a line; followed by its launcher, copied to other nodes.

One writer each, and nobody waits for anybody. Each line is written whole, so a killed run leaves every finished one
readable.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from stash.measure.run.folder import RunFolder
from stash.measure.run.locks import lock
from stash.measure.run.messages import ClimbEnded, Message, Told, decode, encode


class Journal:
    """The writing end, in the leader's process."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    def write(self, *messages: Message | Told) -> None:
        """Add messages, all at once."""
        lines = "".join(f"{encode(message)}\n" for message in messages).encode()
        while lines:  # a large job's are more than one call may take
            lines = lines[os.write(self._open(), lines) :]

    def claim(self) -> bool:
        """Be this launch's one writer; False if another live process is, or if one has told its last word."""
        return lock(self._open()) is not False and not ended(self._folder)

    def _open(self) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(self._folder.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        return self._descriptor


class Tail:
    """Follows a growing file of lines; kept open, so that what was written before somebody removed it is read."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0
        self._file: BinaryIO | None = None

    def lines(self) -> list[bytes]:
        """The lines completed since the last call."""
        data = self.news()
        whole = data[: data.rfind(b"\n") + 1]
        self._at -= len(data) - len(whole)
        return whole.splitlines()

    def messages(self) -> list[Message]:
        """The same, of a journal."""
        return [decode(line) for line in self.lines()]

    def news(self) -> bytes:
        """All that was added since the last call, whole lines or not; nothing while there is no such file."""
        if self._file is None:
            try:
                self._file = self._path.open("rb")
            except FileNotFoundError:
                return b""
        self._file.seek(self._at)
        data = self._file.read()
        self._at += len(data)
        return data


def ended(folder: RunFolder) -> bool:
    """Whether the leader has written its last message."""
    return any(isinstance(message, ClimbEnded) for message in Tail(folder.journal).messages())


class JournalCopy:
    """The leader's journal, carried to every other node with the leader's decisions: it outlives the leader's node.

    The leader's side reads what was added to the file; on another node, one rank of each folder appends it.
    """

    def __init__(self, folder: RunFolder, writes: bool) -> None:
        self._source, self._target, self._writes = Tail(folder.journal), folder.copy, writes

    def news(self) -> bytes:
        """What the leader wrote since the last call."""
        return self._source.news()

    def take(self, news: bytes) -> None:
        """Add what came from the leader."""
        if self._writes and news:
            with self._target.open("ab") as file:
                file.write(news)
