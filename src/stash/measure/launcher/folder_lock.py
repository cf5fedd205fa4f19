"""One command at a time works in a folder or writes an output file: two would take each other's files for the user's.

The folder itself is locked, and an output file by a name in the kernel's table of sockets: both leave nothing behind,
and end with the processes that have them, however those end. What is done to the user's files is not known here.
Standard library only: the guardian imports this too.
"""

from __future__ import annotations

import errno
import hashlib
import math
import os
import shlex
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stash.core.errors import UserError
from stash.core.printable import printable_line
from stash.core.secrets import mask_words
from stash.measure.linux.processes import status_of
from stash.measure.protocol.folder import lock, unlock

PATIENCE_SECONDS = 5.0
_PAUSE_SECONDS = 0.1
_MOST_CHARACTERS = 100
"""Of a command that a sentence names."""
_ENDING = "another command of Stash, which is just ending,"


class FolderLock:
    """A context in which no other command of Stash works in ``folder``; it may be entered again within itself.

    ``is_shared``: others whose locks are shared too may, as nodes of one job and watched runs may. Waits
    ``patience_seconds`` for others, which it says, then raises UserError. A command that another one started, like
    what `stash watch` watches, works under that one's lock. Without a ``folder`` nothing is locked.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        is_shared: bool = False,
        patience_seconds: float = PATIENCE_SECONDS,
        find_strangers: Callable[[], list[int]] = list,
    ) -> None:
        self._folder, self._is_shared = folder, is_shared
        self._patience_seconds = patience_seconds
        self._find_strangers = find_strangers
        """Finds processes of other jobs, with which nothing is shared."""
        self._depth = 0
        self.descriptor: int | None = None
        """Of the locked folder: the lock lasts until all processes that have it open have closed it."""

    def __enter__(self) -> FolderLock:
        if self._depth == 0 and self._folder is not None:
            self.descriptor = self._lock_folder(self._folder)
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0 and self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def hand_on(self) -> None:
        """Let the lock last as long as the program that this process is about to become."""
        if self.descriptor is not None:
            os.set_inheritable(self.descriptor, True)

    def _lock_folder(self, folder: Path) -> int | None:
        """The descriptor of the locked folder; None where it cannot be locked, or need not be."""
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:  # it may be worked in, but not read
            _warn_of_no_lock(folder)
            return None
        try:
            deadline = time.monotonic() + self._patience_seconds
            has_said = False
            while (blocking := self._find_blocking(descriptor)) is not None:
                if blocking and all(map(_is_ancestor, blocking)):
                    os.close(descriptor)
                    return None
                holder = _describe_first(blocking)
                if time.monotonic() >= deadline:
                    raise UserError(
                        f"{holder} is running in {folder}, and two at once would mistake each other's files for "
                        "yours; wait until it ends, or run this in a copy of the folder"
                    )
                if not has_said:
                    most = self._patience_seconds
                    patience = "" if math.isinf(most) else f" up to {most:.0f} s"
                    _print_note(f"waiting{patience}, since {holder} is running in {folder}")
                    has_said = True
                time.sleep(_PAUSE_SECONDS)
        except BaseException:
            os.close(descriptor)
            raise
        if lock(descriptor, self._is_shared) is None:
            os.close(descriptor)
            _warn_of_no_lock(folder)
            return None
        return descriptor

    def _find_blocking(self, descriptor: int) -> list[int] | None:
        """Try to lock: processes that keep this one out, as far as they are known; None where none does."""
        is_locked = lock(descriptor, self._is_shared)
        if is_locked is None or (is_locked and not self._is_shared):
            return None
        holders = _find_holders(os.fstat(descriptor).st_ino)
        if not is_locked:
            return holders
        strangers = [holder for holder in holders if holder in self._find_strangers()]
        if not strangers:
            return None
        unlock(descriptor)
        return strangers


@contextmanager
def output_lock(target: Path) -> Iterator[None]:
    """Be the only command that writes ``target``; raises UserError, which names another one that does."""
    whole = os.path.join(os.path.realpath(target.parent), target.name)
    name = "\0stash-output." + hashlib.sha256(os.fsencode(whole)).hexdigest()[:32]
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sign:
        try:
            sign.bind(name)
            sign.listen()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise UserError(
                    f"{_describe_first(_owners_of(name))} is going to write {target}; wait until it ends, or choose "
                    "another name with --output"
                ) from None
        yield


def _owners_of(name: str) -> list[int]:
    """The process that listens at a name of the kernel's table of sockets."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as visitor:
        try:
            visitor.connect(name)
            credentials = visitor.getsockopt(
                socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
            )
        except OSError:
            return []
    return [struct.unpack("3i", credentials)[0]]


def _find_holders(inode: int) -> list[int]:
    """Processes that have taken a lock on the file of that number."""
    try:
        rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:
        return []
    locks = [row for row in rows if row[1] == "FLOCK" and row[5].rpartition(":")[2] == str(inode)]
    return [int(row[4]) for row in locks]


def _is_ancestor(process: int) -> bool:
    """Whether it is this process, or one that it descends from."""
    own: int = os.getpid()
    while own not in (process, 0):
        status = status_of(own)
        own = 0 if status is None else status.parent
    return own == process


def _describe_first(processes: list[int]) -> str:
    return next(filter(None, map(describe_process, processes)), _ENDING)


def describe_process(pid: int) -> str:
    """Its command, number and start; empty if it is gone."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return ""
    status = status_of(pid)
    if status is None:
        return ""
    since = time.strftime("%H:%M:%S", time.localtime(time.time() - status.age))
    # A command of Stash without the interpreter that runs it.
    if len(words) > 1 and os.path.basename(words[1]) == "stash":
        typed_words = ["stash", *words[2:]]
    else:
        typed_words = ["stash", *words[3:]] if words[1:3] == ["-m", "stash"] else words
    command = printable_line(shlex.join(mask_words(typed_words)), _MOST_CHARACTERS)
    return f"`{command}` (process {pid}, since {since})"


def _warn_of_no_lock(folder: Path) -> None:
    _print_note(f"{folder} cannot be locked: start no second command of Stash there meanwhile")


def _print_note(text: str) -> None:
    print(f"stash: {text}", file=sys.stderr, flush=True)
