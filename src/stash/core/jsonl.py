"""Logs of JSON lines: one process adds whole lines, others follow them, and a line that was cut short is no line.

A log is valid whenever its writer was killed or its disk became full. Standard library only: it runs in the job's
interpreter. What the lines mean, it does not know.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, BinaryIO

from stash.core.files import parse_json

TO_ADD = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC


def add_lines(log: int, lines: bytes, lasting: bool = False) -> None:
    """Add whole lines to a log opened ``TO_ADD``, or nothing: raises OSError.

    What its last writer was killed within makes way for them. ``lasting``: they are in storage on return.
    """
    size = os.fstat(log).st_size
    if size and os.pread(log, 1, size - 1) != b"\n":
        size = os.pread(log, size, 0).rfind(b"\n") + 1
        os.ftruncate(log, size)
    try:
        while lines:
            lines = lines[os.write(log, lines) :]
    except OSError:
        os.ftruncate(log, size)
        raise
    if lasting:
        os.fsync(log)


def append_lines(path: Path, lines: bytes, lasting: bool = False) -> None:
    """Add whole lines to the log at ``path``, which need not be there yet; raises OSError."""
    log = os.open(path, TO_ADD | os.O_CREAT, 0o666)
    try:
        add_lines(log, lines, lasting)
    finally:
        os.close(log)


def append_row(path: Path, /, **row: Any) -> None:
    """Add one object to the log at ``path``, which need not be there yet; raises OSError."""
    append_lines(path, f"{json.dumps(row)}\n".encode())


def whole_lines(content: bytes) -> list[str]:
    """The lines in it, without a last one that was cut short."""
    # ``splitlines`` would end one at other marks within a text
    lines = content.decode(errors="replace").split("\n")
    return lines[:-1]


class Tail:
    """Follows a growing log; kept open, so that what was written before somebody removed it is read.

    Where another file has taken its name, that one is read from its beginning once the old one is.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._file: BinaryIO | None = None

    def read_new_lines(self) -> list[str]:
        """The lines completed since the last call."""
        return whole_lines(self.read_new_bytes())

    def read_new_rows(self) -> list[Any]:
        """The same as values; raises ValueError for what is no JSON."""
        return [parse_json(line) for line in self.read_new_lines()]

    def read_new_bytes(self) -> bytes:
        """The same as bytes; nothing while there is no such file."""
        is_replaced = self._is_replaced()
        found = self._read_new()
        if is_replaced:
            self._file = None
            self._at = 0
            found += self._read_new()
        return found

    def _is_replaced(self) -> bool:
        if self._file is None:
            return False
        try:
            return not os.path.samestat(os.stat(self._path), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            return False

    def _read_new(self) -> bytes:
        if self._file is None:
            try:
                self._file = self._path.open("rb")
            except FileNotFoundError:
                return b""
        self._file.seek(self._at)
        content = self._file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._at += len(whole)
        return whole
