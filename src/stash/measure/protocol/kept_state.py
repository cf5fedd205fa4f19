"""Where the ledgers of kept files outlive launcher and reboot: one folder a run, which every later command finds.

It lies in the user's state directory; where that cannot be written or locked (a read-only home, a file server without
locks), in a private folder of /var/tmp. Never in a folder of the job: whoever can put a file there could have any
file of the user's "restored". Whose launcher lives is told by ``owner``; what lies in a ledger, by ``put_back``.
"""

from __future__ import annotations

import math
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from stash.measure.protocol.folder import claim, is_run, lock, owned
from stash.measure.protocol.kept_places import places
from stash.measure.protocol.put_back import RestoreReport, put_back

PARTING_SECONDS = 2.0
"""For a job's processes to notice that their launcher is gone."""


def claimed_for(run: Path) -> tuple[Path, int] | None:
    """A new folder for what ``run`` keeps, owned as long as the descriptor is open; ``None`` if nowhere is one."""
    for place in map(Path, places()):
        try:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            place.mkdir(mode=0o700, exist_ok=True)
            if not _is_private(place):
                continue
            folder = Path(tempfile.mkdtemp(prefix=f"{run.name}-", dir=place))
        except OSError:
            continue
        with suppress(OSError):
            descriptor = claim(folder)
            if owned(folder):
                return folder, descriptor
            os.close(descriptor)
        shutil.rmtree(folder, ignore_errors=True)
    return None


def left() -> list[Path]:
    """Folders of this user's runs whose launcher does not live, as far as it can be told."""
    found = []
    for place in map(Path, places()):
        with suppress(OSError):
            if _is_private(place):
                found += [folder for folder in place.iterdir() if folder.lstat().st_uid == os.geteuid()]
    return sorted(folder for folder in found if is_run(folder) and owned(folder) is not True)


def ledgers(folder: Path) -> list[Path]:
    """Of a run's launches."""
    return sorted(folder.glob("*.jsonl"))


def put_all_back(folder: Path, late: bool = False) -> RestoreReport:
    """Undo what a run's ledgers tell; what cannot be undone stays. For whoever owns the folder, or has locked it.

    ``late``: somebody may have been at work since its last sign of life, which is the time on the folder.
    """
    found = RestoreReport()
    with suppress(FileNotFoundError):
        status = folder.stat()
        last = status.st_mtime + PARTING_SECONDS if late else math.inf
        for ledger in reversed(ledgers(folder)):
            found += put_back(ledger, last)
        if ledgers(folder):
            os.utime(folder, (status.st_atime, status.st_mtime))  # it is no sign of life that this did not succeed
        else:
            shutil.rmtree(folder)
    return found


def restore(folder: Path) -> RestoreReport | None:
    """The same of a run whose launcher died; ``None`` if somebody else is at it now."""
    try:
        descriptor = os.open(folder / "owner", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return put_all_back(folder, late=True)  # it was kept in the run's own folder, or is done
    try:
        return put_all_back(folder, late=True) if lock(descriptor) is not False else None
    finally:
        os.close(descriptor)


def _is_private(place: Path) -> bool:
    """Whether nobody else can have made it or anything in it."""
    statuses = [path.lstat() for path in (place.parent, place)]
    return all(stat.S_ISDIR(each.st_mode) and each.st_uid == os.geteuid() for each in statuses) and not (
        statuses[1].st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )
