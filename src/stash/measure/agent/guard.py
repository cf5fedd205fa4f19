"""Lets no profile change a file of the user's: keeps every file that a process is about to write.

Python tells of each open, rename and removal before it happens (PEP 578), whichever library asks for it. What C code
opens by itself passes unnoticed but for what ``wraps/opened_files`` names. How files are kept is not known here.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from stash.measure.agent import script
from stash.measure.protocol.file_backup import FileBackup
from stash.measure.protocol.orders import Orders

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_TRUNC
_BY_THEMSELVES = (".pyc", ".lock")
"""Ends of names of files that say nothing of a model: not worth a word to the user."""


_OF_SQLITE = ("-wal", "-journal", "-shm")
"""What it writes beside a database, of which it is a part."""


_WORTH_TELLING = 2e-5
"""Seconds of Stash's own work."""


class _Busy(threading.local):
    """Whether this thread is keeping a file, which opens and links files itself: those do not count."""

    now = False

    def call_unless_busy(self, act: Callable[..., None], *arguments: Any) -> None:
        """Call ``act``, unless this is within such a call; it is Stash's own work."""
        if not self.now:
            self.now, began = True, time.perf_counter()
            try:
                act(*arguments)
            finally:
                self.now = False
                if time.perf_counter() - began > _WORTH_TELLING:
                    script.listener().worked_since(began)


_unless_busy = _Busy().call_unless_busy
_keepers: list[FileBackup] = []
"""Of this process: one, once there is any."""
_saving: list[Any] = []
"""What checkpoints are being saved to now."""


def protect_files(orders: Orders) -> None:
    """From now on this process changes no file that is older than the run."""
    keeper = FileBackup(
        orders.files,
        orders.began,
        passing=lambda: (orders.passing or bool(_saving)) and script.passes() > 0,
        unnoted=lambda why: script.note(
            f"new files of the job are neither removed nor named: {why}"
        ),
        trains=lambda: script.passes() > 0,
        traces=orders.traces or "",
    )
    _keepers[:] = [keeper]
    actions: Mapping[str, Callable[..., None]] = {
        "open": lambda path, mode, flags: _guard_open(keeper, path, flags or 0),
        "os.mkdir": lambda path, mode, folder: _guard_folder(keeper, _full_path(path, folder)),
        "os.remove": lambda path, folder: keeper.before_removing(_full_path(path, folder)),
        "os.rename": lambda path, to, folder, other: _guard_move(
            keeper, _full_path(path, folder), _full_path(to, other)
        ),
        "os.link": lambda path, to, folder, other: _guard_link(keeper, _full_path(to, other)),
        "os.symlink": lambda path, to, folder: _guard_link(keeper, _full_path(to, folder)),
        "os.truncate": lambda path, length: _guard_open(keeper, path, os.O_WRONLY),
        "sqlite3.connect": lambda path: _guard_connection(keeper, path),
    }

    def audit_event(event: str, arguments: tuple[Any, ...]) -> None:
        act = actions.get(event)
        if act is not None:
            _unless_busy(act, *arguments)

    sys.addaudithook(audit_event)


def about_to_write(path: str, truncates: bool) -> None:
    """Tell of a file that C code is about to open by itself."""
    for keeper in _keepers:
        _unless_busy(_guard_open, keeper, path, os.O_WRONLY | (os.O_TRUNC if truncates else 0))


@contextlib.contextmanager
def saving(file: Any = None) -> Iterator[None]:
    """A checkpoint is saved meanwhile, perhaps to an open ``file``: if it is new, it goes again when the job ends."""
    _saving.append(file)
    try:
        name = getattr(file, "name", None)
        for keeper in _keepers if isinstance(name, str) and os.path.lexists(name) else ():
            _unless_busy(keeper.before_making, name)
        yield
    finally:
        _saving.pop()


def _guard_open(keeper: FileBackup, path: Any, flags: int) -> None:
    if not flags & _WRITES or isinstance(path, int):
        return
    name = os.fsdecode(path)
    keeper.before_writing(
        name, truncates=bool(flags & os.O_TRUNC), appends=bool(flags & os.O_APPEND)
    )
    _guard_new_path(keeper, name)


def _guard_folder(keeper: FileBackup, folder: str) -> None:
    keeper.before_appearing(folder)
    keeper.before_making(folder)


def _guard_connection(keeper: FileBackup, path: Any) -> None:
    name = os.fsdecode(path)
    if name.startswith("file:"):
        name = unquote(name.removeprefix("file:").partition("?")[0])
    keeper.before_writing_beside(name, _OF_SQLITE)
    _guard_open(keeper, name, os.O_RDWR)


def _guard_move(keeper: FileBackup, path: str, target: str) -> None:
    keeper.before_moving(path, target)
    _guard_new_path(keeper, target)


def _guard_link(keeper: FileBackup, path: str) -> None:
    if not os.path.lexists(path):
        keeper.before_making(path)
        _guard_new_path(keeper, path)


def _guard_new_path(keeper: FileBackup, path: str) -> None:
    if path.startswith(("/dev/", "/proc/", "/sys/")) or path.endswith(_BY_THEMSELVES):
        return
    keeper.before_appearing(path)
    if script.drifted() or (script.active() and script.passes() > 0):
        keeper.writes_new_file(path)


def _full_path(path: Any, folder: int) -> str:
    """A path that may be relative to an open folder (-1: to the current one)."""
    name = os.fsdecode(path)
    return name if folder < 0 else os.path.join(os.readlink(f"/proc/self/fd/{folder}"), name)
