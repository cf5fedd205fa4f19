"""Put the user's files back: undo what ledgers of kept files list (``file_backup``), and find those of killed runs.

Each run has a folder for its ledgers that outlives launcher and reboot: in the user's state directory, or where that
cannot be written or locked (a read-only home, a file server without locks) in a private folder of /var/tmp. Never in
a folder of the job: whoever can put a file there could have any file of the user's "restored". Each step of undoing
is atomic or can be done again, so whoever is killed on the way leaves the rest to the next one; what cannot be undone
now stays in the ledger. Whether the job has ended is for the caller to know. Standard library only.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from stash.core.files import write_whole
from stash.measure.protocol.file_backup import BackupEntry, entries_of
from stash.measure.protocol.folder import backup_places, claim, has_owner, list_runs, lock

SHUTDOWN_SECONDS = 2.0
"""For a job's processes to notice that their launcher is gone."""


NOT_BEFORE = ("new", "early", "made", "whole", "renamed")
"""What was noted of names that the job gave."""


@dataclass(frozen=True)
class RestoreReport:
    """What the files of a launch came to: paths."""

    restored: tuple[str, ...] = ()
    unprotected: tuple[str, ...] = ()
    """Too large to be kept, or not put back for another reason, with that reason."""
    new: tuple[str, ...] = ()
    """Files, and folders with all that is in them, where there was nothing before; empty files of a job that trained
    by then are removed."""

    def __add__(self, other: RestoreReport) -> RestoreReport:
        return RestoreReport(
            self.restored + other.restored,
            self.unprotected + other.unprotected,
            self.new + other.new,
        )


def put_back(ledger: Path, last: float = math.inf) -> RestoreReport:
    """Undo what a launch's ledger lists; call it when the job's processes are gone.

    ``last`` is the run's last sign of life (Unix time), where somebody may have been at work on the same files since:
    what was changed after it stays, and the original is saved under a new name next to it.
    """
    entries = entries_of(ledger)
    if entries is None:
        return RestoreReport()
    restored, unprotected, undone = list[str](), list[str](), list[BackupEntry]()
    changed_since = {kept.path for kept in entries if _changed_after(last, kept)}  # not by us
    users = [kept.other for kept in entries if kept.how == "moved"]
    moves, moved_back, jobs = _match_moves(entries), set[BackupEntry | None](), list[str]()
    for kept in reversed(_order_entries(entries, moves)):
        above = [each.path for each in undone if each.how == "moved"]
        waits = kept.how not in ("new", "early", "left") and _is_in_any(kept.path, above)
        if not waits and not is_to_undo(kept):
            continue
        try:
            if waits:
                raise OSError(errno.EBUSY, "its folder does not have its name again")
            if kept.path in changed_since:
                unprotected.append(f"{kept.path} (another one is there now{_saved_next_to(kept)})")
            else:
                if kept.how == "moved":
                    jobs += _make_way(kept.path)
                    moved_back.add(kept)
                there = filter(os.path.lexists, users)
                if kept.how == "whole" and any(_is_in(folder, kept.path) for folder in there):
                    raise OSError(
                        errno.ENOTEMPTY, "a folder that was there before the run is in it"
                    )
                _undo_entry(kept)
                restored += [kept.path] if kept.how not in NOT_BEFORE else []
        except OSError as error:
            where = f"as it was, it {_linking_verb(kept)} {kept.other}; " if kept.other else ""
            unprotected.append(
                f"{kept.path} ({error.strerror}; {where}`stash restore` tries again)"
            )
            undone.insert(0, kept)
    _keep_undone(ledger, undone)
    for attic in {os.path.dirname(kept.other) for kept in entries if kept.how == "aside"}:
        with suppress(OSError):  # not empty: somebody's file could not be put back
            os.rmdir(attic)
    unprotected += [f"{kept.path} (too large to keep)" for kept in entries if kept.how == "left"]
    seen = [
        kept for kept in entries if kept.how in ("new", "early") and moves[kept] not in moved_back
    ]
    # at a name of the job's it is no more
    restored = [path for path in restored if os.path.lexists(path)]
    new = _distinct(jobs + _list_new(seen))
    return RestoreReport(_distinct(restored), _distinct(unprotected), new)


def _keep_undone(ledger: Path, undone: list[BackupEntry]) -> None:
    """In the ledger there stays what is still to be undone."""
    if undone:
        write_whole(ledger, "".join(json.dumps(asdict(kept)) + "\n" for kept in undone), mode=0o600)
    else:
        ledger.unlink(missing_ok=True)


def _list_new(seen: list[BackupEntry]) -> list[str]:
    """What the job left where nothing was; empty files of a job that trained are removed."""
    trained = [kept.path for kept in seen if kept.how == "new" and not _removed_empty(kept.path)]
    early = [kept.path for kept in seen if kept.how == "early" and os.path.lexists(kept.path)]
    whole = set(early)
    return [path for path in early + trained if whole.isdisjoint(map(str, Path(path).parents))]


def _match_moves(entries: list[BackupEntry]) -> dict[BackupEntry, BackupEntry | None]:
    """Of each file and folder of the job's: the last move before it of a folder of the user's that it would be in."""
    moved: list[BackupEntry] = []
    found: dict[BackupEntry, BackupEntry | None] = {}
    for kept in entries:
        if kept.how == "moved":
            moved.insert(0, kept)
        elif kept.how in ("made", "whole", "new", "early"):
            found[kept] = next((move for move in moved if _is_in(kept.path, move.path)), None)
    return found


def _order_entries(
    entries: list[BackupEntry], moves: dict[BackupEntry, BackupEntry | None]
) -> list[BackupEntry]:
    """What is made, folders before what is in them, then the rest, as it was done.

    What is made where a folder of the user's had been moved away follows that move: it goes before that is undone.
    Without what is made at a name that a file of the user's had too, or that another process noted as well.
    """
    rest = [kept for kept in entries if kept.how not in ("made", "whole")]
    users = {kept.path for kept in rest if kept.how not in NOT_BEFORE}
    made: dict[BackupEntry | None, list[BackupEntry]] = {}
    for kept in sorted(
        {kept for kept in entries if kept.how in ("made", "whole")}, key=lambda kept: kept.path
    ):
        move = moves[kept]
        if kept.path not in users or (move is not None and move.path == kept.path):
            made.setdefault(move, []).append(kept)
    ordered = made.get(None, [])
    for kept in rest:
        ordered += [kept, *made.get(kept, ())]
    return ordered


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + os.sep)


def _is_in_any(path: str, folders: list[str]) -> bool:
    return any(_is_in(path, folder) for folder in folders)


def is_to_undo(kept: BackupEntry) -> bool:
    """Whether there is something to undo."""
    if kept.how == "sized":
        is_file = os.path.isfile(kept.path) and not os.path.islink(kept.path)
        return not is_file or os.path.getsize(kept.path) != kept.size
    if kept.how == "link":
        return not os.path.islink(kept.path) or os.readlink(kept.path) != kept.other
    if kept.how == "moved":
        is_it = os.path.isdir(kept.other) and os.stat(kept.other).st_ino == kept.size
        return is_it if os.path.lexists(kept.path) else os.path.isdir(kept.other)
    if kept.how in ("made", "whole"):
        return os.path.lexists(kept.path)
    if kept.how == "renamed":
        return _are_one(kept.path, kept.other)
    return kept.how in ("aside", "copied") and os.path.lexists(kept.other)


def _changed_after(moment: float, kept: BackupEntry) -> bool:
    """By the time that no program can set: what was copied there since may have an older one of its content."""
    paths = [Path(kept.path)]
    if kept.how == "whole" and moment < math.inf:
        paths += paths[0].rglob("*")
    for path in paths:
        with suppress(OSError):
            status = os.lstat(path)
            if max(status.st_mtime, status.st_ctime) > moment:
                return True
    return False


def _are_one(path: str, other: str) -> bool:
    """Whether both names are of the same file or link."""
    try:
        return os.path.samestat(os.lstat(path), os.lstat(other))
    except OSError:
        return False


def _undo_entry(kept: BackupEntry) -> None:
    """Raises OSError."""
    if kept.how in NOT_BEFORE:
        if not os.path.isdir(kept.path) or os.path.islink(kept.path):
            os.unlink(kept.path)
        elif kept.how == "whole":
            shutil.rmtree(kept.path)
        elif not os.listdir(kept.path):  # what else is in it is not the job's
            os.rmdir(kept.path)
        return
    os.makedirs(os.path.dirname(kept.path), exist_ok=True)
    if kept.how == "aside" and _are_one(
        kept.path, kept.other
    ):  # the job removed it only from another file system, or not at all
        os.unlink(kept.other)  # which renaming would not do
        return
    if os.path.islink(kept.path):  # nothing is written to where it leads
        os.unlink(kept.path)
    if kept.how == "link":
        os.symlink(kept.other, kept.path)
    elif kept.how == "sized" and kept.size == 0:
        open(kept.path, "wb").close()
    elif kept.how == "sized":
        os.truncate(kept.path, kept.size)
    elif kept.how == "copied":
        # in place: its owner, its links; the copy is there until that is done
        shutil.copyfile(kept.other, kept.path)
        with suppress(OSError):
            shutil.copystat(kept.other, kept.path)
        os.unlink(kept.other)
    else:
        os.replace(kept.other, kept.path)


def _make_way(path: str) -> list[str]:
    """Where what the job put in the place of a folder is from now on, if that is not empty; raises OSError."""
    with suppress(OSError):
        os.rmdir(path)
    if not os.path.lexists(path):
        return []
    name = _free_path(f"{path}.of-the-job")
    os.rename(path, name)
    return [name]


def _free_path(path: str) -> str:
    """The path, or with a number the first one at which nothing is."""
    name, number = path, 1
    while os.path.lexists(name):
        number += 1
        name = f"{path}-{number}"
    return name


def _saved_next_to(kept: BackupEntry) -> str:
    """Where the original of a file is from now on whose name somebody else has taken; raises OSError."""
    if kept.how in ("link", "moved"):
        return f"; as it was, it {_linking_verb(kept)} {kept.other}"
    if kept.how not in ("aside", "copied"):
        return ""
    name = _free_path(f"{kept.path}.as-it-was")
    shutil.move(kept.other, name)
    return f"; as it was, it is {name}"


def _linking_verb(kept: BackupEntry) -> str:
    return "led to" if kept.how == "link" else "is"


def _removed_empty(path: str) -> bool:
    """Whether a new file is not there, or was empty (a placeholder for a checkpoint, a mark) and is no more."""
    try:
        if os.path.getsize(path) == 0 and os.path.isfile(path) and not os.path.islink(path):
            os.unlink(path)
            return True
    except OSError:
        pass  # gone, or a link that leads nowhere
    return not os.path.lexists(path)


def _distinct(paths: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(paths))


def claim_for_run(run: Path) -> tuple[Path, int] | None:
    """A new folder for what ``run`` keeps, owned as long as the descriptor is open; ``None`` if nowhere is one."""
    for place in map(Path, backup_places()):
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
            if has_owner(folder):
                return folder, descriptor
            os.close(descriptor)
        shutil.rmtree(folder, ignore_errors=True)
    return None


def find_abandoned() -> list[Path]:
    """Folders of this user's runs whose launcher does not live, as far as is known."""
    found: list[Path] = []
    for place in map(Path, backup_places()):
        with suppress(OSError):
            found += list_runs(place, "*") if _is_private(place) else []
    return sorted(folder for folder in found if has_owner(folder) is not True)


def list_ledgers(folder: Path) -> list[Path]:
    """The ledgers of a run's launches."""
    return sorted(folder.glob("*.jsonl"))


def put_all_back(folder: Path, late: bool = False) -> RestoreReport:
    """Undo what a run's ledgers list; what cannot be undone stays. For whoever owns the folder, or has locked it.

    ``late``: somebody may have been at work since its last sign of life, which is the time on the folder.
    """
    found = RestoreReport()
    with suppress(FileNotFoundError):
        status = folder.stat()
        last = status.st_mtime + SHUTDOWN_SECONDS if late else math.inf
        for ledger in reversed(list_ledgers(folder)):
            found += put_back(ledger, last)
        if list_ledgers(folder):
            # it is no sign of life that this did not succeed
            os.utime(folder, (status.st_atime, status.st_mtime))
        else:
            shutil.rmtree(folder)
    return found


def restore_run(folder: Path) -> RestoreReport | None:
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
    """Whether no other user can have made it or anything in it."""
    statuses = [path.lstat() for path in (place.parent, place)]
    return all(
        stat.S_ISDIR(each.st_mode) and each.st_uid == os.geteuid() for each in statuses
    ) and not (statuses[1].st_mode & (stat.S_IWGRP | stat.S_IWOTH))
