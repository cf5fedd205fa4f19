"""The one temporary folder of a run: private to the user, owned while the run lasts, removed at its end.

What a killed Stash could not remove is swept when the next one starts, once the files that it had set aside are back.
Touches nothing that another user, or another program, has made.
"""

from __future__ import annotations

import math
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from stash.measure.run.folder import KEPT, RunFolder
from stash.measure.run.owner import claim, disown, is_run, owned
from stash.measure.run.put_back import Aftermath, put_back
from stash.measure.run.state import PARTING_SECONDS, left, restore

_PREFIX = "stash-"
_KEPT_SECONDS = 7 * 24 * 3600.0
"""How long a log stays, and a folder whose owner cannot be seen: another machine's, or from before a restart."""


class Swept(NamedTuple):
    """What was found of runs that were killed."""

    dead: int
    """So many of them."""
    aftermaths: tuple[Aftermath, ...]
    """What became of the files that they had set aside."""


class TemporaryFolder:
    """A context in which ``path`` is this run's; ``keep`` lets one file of it stay.

    ``swept`` is what runs before it had left, that were killed.
    """

    def __init__(self) -> None:
        self._parent = Path(tempfile.gettempdir())
        self._kept: Path | None = None

    def __enter__(self) -> TemporaryFolder:
        self.swept = sweep(self._parent)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=self._parent))
        self._claimed = claim(self.path)
        return self

    def keep(self, file: Path) -> Path:
        """Let this file of the folder stay, for a week; the value is where it will be."""
        self._kept = file.replace(self.path / file.name)
        return self._kept

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._kept is None:
            remove(self.path)
        else:
            for folder in [path for path in self.path.iterdir() if path.is_dir() and path.name != KEPT]:
                shutil.rmtree(folder, ignore_errors=True)
            disown(self.path)
        os.close(self._claimed)


def sweep(parent: Path) -> Swept:
    """Remove the folders of runs whose launcher died, and old logs; put back what those runs had set aside."""
    dead, found = 0, restored()
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            status = folder.lstat()
        except OSError:
            continue  # gone by now
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or not is_run(folder):
            continue
        lives, unchanged = owned(folder), time.time() - status.st_mtime
        if lives is False or (lives is None and unchanged > _KEPT_SECONDS):
            aftermath = restore(Path(os.path.realpath(folder / KEPT)))
            if aftermath is None:
                continue  # a guardian is at it
            found.append(aftermath + remove(folder))
            dead += lives is False
    return Swept(dead, tuple(found))


def remove(run: Path, late: bool = True) -> Aftermath:
    """Remove a run's folder, unless originals of the user's files are in it that cannot be put back.

    ``late``: it may be long ago that the run was killed.
    """
    found = Aftermath()
    for launch in map(RunFolder, sorted(run.glob("launch-*"))):
        if launch.kept_here.exists():
            last = max(path.stat().st_mtime for path in launch.path.iterdir()) + PARTING_SECONDS
            found += put_back(launch.kept_here, last if late else math.inf)
    kept = (run / KEPT).is_dir() and not (run / KEPT).is_symlink()
    if not kept and not any(run.glob("launch-*/kept.jsonl")):
        shutil.rmtree(run, ignore_errors=True)
    return found


def restored() -> list[Aftermath]:
    """Put back now what runs had set aside that were killed, with their guardians."""
    found = [restore(folder) for folder in left() if owned(folder) is False]
    return [aftermath for aftermath in found if aftermath is not None]
