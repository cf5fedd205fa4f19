"""The temporary folder of a run, and other measurements on this machine at the same time."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import secrets
import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from stash.core.errors import UserError
from stash.measure.protocol.folder import (
    KEPT,
    RunFolder,
    claim,
    disown_folder,
    has_owner,
    list_runs,
)
from stash.measure.protocol.put_back import (
    SHUTDOWN_SECONDS,
    RestoreReport,
    find_abandoned,
    put_back,
    restore_run,
)

# Other measurements: each shows itself to the others, whoever's they are. The sign is a name in the kernel's table of
# Unix sockets: it needs no folder that two users could quarrel over, and goes with its process however that ends. All
# processes of one network namespace can read it, so the hosts of a testbed, which share a machine on purpose, do not
# see each other; neither do containers with networks of their own.

_SIGN = re.compile(r" @stash-run\.([0-9a-f]+)\.(\d+)$", re.M)
_SOCKETS = Path("/proc/net/unix")


class NeighbouringRuns:
    """A context in which this process shows that it measures. Launchers with one ``meeting`` (the address where the
    nodes of a run meet) belong together, and do not count as each other's neighbours."""

    def __init__(self, meeting: str | None = None, sockets: Path = _SOCKETS) -> None:
        self._run = (
            hashlib.sha256(meeting.encode()).hexdigest()[:16] if meeting else secrets.token_hex(8)
        )
        self._sockets = sockets
        self._sign = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def __enter__(self) -> NeighbouringRuns:
        with contextlib.suppress(OSError):  # unseen, we see others all the same
            self._sign.bind(f"\0stash-run.{self._run}.{os.getpid()}")
        return self

    def __exit__(self, *_: object) -> None:
        self._sign.close()

    def list_others(self) -> list[int]:
        """The processes that measure for other runs now; none where the kernel does not tell."""
        try:
            signs = _SIGN.findall(self._sockets.read_text(errors="replace"))
        except OSError:
            return []
        return sorted(int(process) for run, process in signs if run != self._run)


# The one temporary folder of a run: private to the user, owned while the run lasts, removed at its end. What a killed
# Stash could not remove is swept when the next one starts, once the files that it had set aside are back.

_PREFIX = "stash-"
_KEPT_SECONDS = 7 * 24 * 3600.0
"""How long a log stays, and a folder whose owner cannot be seen: another machine's, or from before a restart."""


class SweepResult(NamedTuple):
    """What was found of runs that were killed."""

    dead: int
    """So many of them."""
    reports: tuple[RestoreReport, ...]
    """What became of the files that they had set aside."""


class TemporaryFolder:
    """A context in which ``path`` is this run's; ``keep_file`` lets one file of it stay.

    ``swept`` is what runs before it had left, that were killed.
    """

    def __init__(self) -> None:
        self._parent = Path(tempfile.gettempdir())
        self._kept: Path | None = None

    def __enter__(self) -> TemporaryFolder:
        self.swept = sweep_folders(self._parent)
        try:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=self._parent))
            self._claimed = claim(self.path)
        except OSError as error:
            raise UserError(
                f"nothing can be written in {self._parent} ({error.strerror}); make room there, or name another "
                "folder with TMPDIR"
            ) from None
        return self

    def keep_file(self, file: Path) -> Path:
        """Let this file of the folder stay, for a week; the value is where it will be."""
        self._kept = file.replace(self.path / file.name)
        return self._kept

    def __exit__(self, *_: object) -> None:
        if self._kept is None:
            remove_run(self.path)
        else:
            for folder in [
                path for path in self.path.iterdir() if path.is_dir() and path.name != KEPT
            ]:
                shutil.rmtree(folder, ignore_errors=True)
            disown_folder(self.path)
        os.close(self._claimed)


def sweep_folders(parent: Path) -> SweepResult:
    """Remove the folders of runs whose launcher died, and old logs; put back what those runs had set aside."""
    dead, found = 0, restore_killed_runs()
    for folder in list_runs(parent, f"{_PREFIX}*"):
        lives, unchanged = has_owner(folder), time.time() - folder.lstat().st_mtime
        if lives is False or (lives is None and unchanged > _KEPT_SECONDS):
            report = restore_run(Path(os.path.realpath(folder / KEPT)))
            if report is None:
                continue  # a guardian is at it
            found.append(report + remove_run(folder))
            dead += lives is False
    return SweepResult(dead, tuple(found))


def remove_run(run: Path, late: bool = True) -> RestoreReport:
    """Remove a run's folder, unless originals of the user's files are in it that cannot be put back.

    ``late``: it may be long ago that the run was killed.
    """
    found = RestoreReport()
    for launch in map(RunFolder, sorted(run.glob("launch-*"))):
        if launch.kept_here.exists():
            last = max(path.stat().st_mtime for path in launch.path.iterdir()) + SHUTDOWN_SECONDS
            found += put_back(launch.kept_here, last if late else math.inf)
    kept = (run / KEPT).is_dir() and not (run / KEPT).is_symlink()
    if not kept and not any(run.glob("launch-*/kept.jsonl")):
        shutil.rmtree(run, ignore_errors=True)
    return found


def restore_killed_runs() -> list[RestoreReport]:
    """Put back now what runs had set aside that were killed, with their guardians."""
    found = [restore_run(folder) for folder in find_abandoned() if has_owner(folder) is False]
    return [report for report in found if report is not None]
