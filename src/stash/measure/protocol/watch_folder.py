"""Where ranks and their watcher share files in memory: a folder for each watch, one for each user's known names.

All users write to these places, so a name that can be foreseen may be taken by another user: it is used within a
folder that is this user's alone. The watcher owns its watch's folder (``folder.claim``); one without an owner was
left by a watcher that was killed. Standard library only: agents use it, too.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stash.measure.protocol.folder import claim, has_owner, list_runs

PREFIX = "stash-watch-"
_MIN_FREE = 16 << 20
"""Bytes, for the rings of 64 ranks; a pod has 64 MB, and its loaders' batches lie there."""


def shared_places() -> tuple[str, str]:
    """In memory and on disk."""
    return "/dev/shm", tempfile.gettempdir()


def memory_folder() -> str:
    """A folder in memory, where there is one with room: rings are written to at every step."""
    memory, disk = shared_places()
    with suppress(OSError):
        if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > _MIN_FREE:
            return memory
    return disk


def user_folder(place: str) -> Path:
    """Where in a shared place this user's folder is, if it was made."""
    return Path(place) / f"stash-user-{os.getuid()}"


def own_folder(place: str) -> Path:
    """The same, made; raises OSError where another user has taken its name, or may write to it."""
    folder = user_folder(place)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a folder of yours alone; have its owner remove it")
    return folder


def attach_file(process: int) -> Path:
    """Where a process that can be attached to finds the name of its orders, once a watcher listens."""
    memory, disk = shared_places()
    return user_folder(memory if os.access(memory, os.W_OK) else disk) / f"attach-{process}"


@contextmanager
def watch_folder() -> Iterator[Path]:
    """A folder for one watch, owned by this process within the block and removed at its end."""
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=memory_folder()) as name:
        owner = claim(Path(name))
        try:
            yield Path(name)
        finally:
            os.close(owner)


def remove_stale_orders() -> None:
    """Remove what tells processes of orders that are gone: their watcher was killed."""
    for place in shared_places():
        for file in user_folder(place).glob("attach-*"):
            with suppress(OSError, UnicodeError):
                if not os.path.exists(file.read_text()):
                    file.unlink()


def abandoned_folders() -> list[Path]:
    """Folders of this user's watches whose watcher was killed."""
    places = [place for each in shared_places() for place in (Path(each), user_folder(each))]
    found = (folder for place in places for folder in list_runs(place, f"{PREFIX}*"))
    return [folder for folder in found if has_owner(folder) is False]
