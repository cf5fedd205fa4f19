"""Undo what a ledger of kept files tells (``kept``), the last first: the user's files are as they were.

Each step is atomic or can be done again, so that whoever is killed on the way leaves the rest to the next one; what
cannot be undone now stays in the ledger. Whether the job has ended is for the caller to know.
"""

from __future__ import annotations

import json
import math
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from stash.measure.protocol.file_backup import Kept


@dataclass(frozen=True)
class RestoreReport:
    """What the files of a launch came to: paths."""

    restored: tuple[str, ...] = ()
    unprotected: tuple[str, ...] = ()
    """Too large to be kept, or not put back for another reason, with that reason."""
    new: tuple[str, ...] = ()
    """Written by replicas that had trained apart, where there was nothing before; empty ones are removed."""

    def __add__(self, other: RestoreReport) -> RestoreReport:
        return RestoreReport(
            self.restored + other.restored, self.unprotected + other.unprotected, self.new + other.new
        )


def put_back(ledger: Path, last: float = math.inf) -> RestoreReport:
    """Undo what a launch's ledger tells; call it when the job's processes are gone.

    ``last`` is the run's last sign of life (Unix time), where somebody may have been at work on the same files since:
    what was changed after it stays, and the original gets a name beside it.
    """
    entries = entries_of(ledger)
    if entries is None:
        return RestoreReport()
    restored: list[str] = []
    unprotected: list[str] = []
    undone: list[Kept] = []
    changed = [kept for kept in reversed(entries) if is_to_undo(kept)]
    changed_since = {kept.path for kept in changed if _changed_after(last, kept.path)}  # before we change them
    for kept in changed:
        try:
            if kept.path in changed_since:
                unprotected.append(f"{kept.path} (another one is there now{_beside(kept)})")
            else:
                _undo(kept)
                restored.append(kept.path)
        except OSError as error:
            where = f"as it was, it is {kept.other}; " if kept.other else ""
            unprotected.append(f"{kept.path} ({error.strerror}; {where}`stash restore` tries again)")
            undone.insert(0, kept)
    _leave(ledger, undone)
    for attic in {os.path.dirname(kept.other) for kept in entries if kept.how == "aside"}:
        with suppress(OSError):  # not empty: somebody's file could not be put back
            os.rmdir(attic)
    unprotected += [f"{kept.path} (too large to keep)" for kept in entries if kept.how == "left"]
    new = [kept.path for kept in entries if kept.how == "new" and not _removed_empty(kept.path)]
    return RestoreReport(_distinct(restored), _distinct(unprotected), _distinct(new))


def entries_of(ledger: Path) -> list[Kept] | None:
    """The lines of a ledger, in the order of what was done; ``None`` if there is none."""
    try:
        lines = ledger.read_text().splitlines()
    except OSError:
        return None
    return [kept for kept in map(_entry, lines) if kept is not None]


def is_to_undo(kept: Kept) -> bool:
    """Whether there is something to undo."""
    if kept.how == "sized":
        return not os.path.exists(kept.path) or os.path.getsize(kept.path) != kept.size
    if kept.how == "moved":
        return os.path.isdir(kept.other) and not os.path.lexists(kept.path)
    return kept.how in ("aside", "copied") and os.path.lexists(kept.other)


def _entry(line: str) -> Kept | None:
    """``None`` of a line that was cut short: then what it announces was not done."""
    try:
        return Kept(**json.loads(line))
    except (ValueError, TypeError):
        return None


def _changed_after(moment: float, path: str) -> bool:
    """By the time that nobody can set: what was copied there since may have an older one of its content."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return max(status.st_mtime, status.st_ctime) > moment


def _undo(kept: Kept) -> None:
    """Raises OSError."""
    os.makedirs(os.path.dirname(kept.path), exist_ok=True)
    if kept.how == "sized" and kept.size == 0:
        open(kept.path, "wb").close()
    elif kept.how == "sized":
        os.truncate(kept.path, kept.size)
    elif kept.how == "copied":
        import shutil

        shutil.copyfile(kept.other, kept.path)  # in place: its owner, its links; the copy is there until that is done
        with suppress(OSError):
            shutil.copystat(kept.other, kept.path)
        os.unlink(kept.other)
    else:
        os.replace(kept.other, kept.path)


def _beside(kept: Kept) -> str:
    """Where the original of a file is from now on whose name somebody else has taken; raises OSError."""
    if kept.how not in ("aside", "copied"):
        return ""
    import shutil

    name, number = f"{kept.path}.as-it-was", 1
    while os.path.lexists(name):
        number += 1
        name = f"{kept.path}.as-it-was-{number}"
    shutil.move(kept.other, name)
    return f"; as it was, it is {name}"


def _leave(ledger: Path, undone: list[Kept]) -> None:
    """In the ledger there stays what is still to be undone."""
    if not undone:
        ledger.unlink(missing_ok=True)
        return
    draft = ledger.with_suffix(".new")
    draft.write_text("".join(json.dumps(asdict(kept)) + "\n" for kept in undone))
    draft.replace(ledger)


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
