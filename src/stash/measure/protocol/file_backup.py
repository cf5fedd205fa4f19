"""Files that were there before the run: kept aside before its job changes them.

The job's processes ``keep`` a file that they are about to write, replace or remove, whatever function does so. The
original itself steps aside to an *attic*, beside the ledger or, on another file system, in a hidden folder there, so
nothing is copied but what a writer must find. A ledger outlives all of them; how it is undone, and where it is,
``put_back`` knows.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from stash.core.jsonl import TO_ADD, add_lines, whole_lines
from stash.measure.protocol.folder import RunFolder, has_owner, is_run, wait_for_lock

MAX_COPIED = 1 << 30
"""Bytes of a file that are copied where a writer must find them and the file system cannot clone."""
_FICLONE = 0x40049409
"""ioctl_ficlone(2): a copy-on-write clone."""
_ATTIC = ".kept-by-stash-"
MAX_REMEMBERED = 1 << 16
"""Paths of what a process made itself, the last ones."""
_CACHES = re.compile(r"tmp[a-z0-9_]{8}|torchinductor_|pymp-")
"""Beginnings of names in the temporary folder: what Python and libraries put there for themselves."""
_AHEAD = 2.0
"""Seconds by which a file's clock may be ahead of this process's before its age counts as from the future."""

How = Literal[
    "aside", "copied", "link", "sized", "moved", "renamed", "left", "new", "early", "made", "whole"
]

_ORIGINALS = ("aside", "copied", "link", "sized")


@dataclass(frozen=True)
class BackupEntry:
    """One line of the ledger: what was done about ``path``, and what undoes it.

    ``aside``: the original itself is at ``other``. ``copied``: a copy of it is. ``link``: it led to ``other``.
    ``sized``: it had ``size`` bytes, and the job only adds to them. ``moved``: a folder, of inode ``size``, that the
    job renamed to ``other``. ``renamed``: the job's name for what is at ``other``. ``left``: nothing could be done.
    ``new``: it was not there before. ``early``: nor was this file or folder, which stays, whatever is in it: it may
    have been made before the job trained. ``made``: nor was this, and it goes again. ``whole``: nor was this folder,
    which goes with all that is in it.
    """

    path: str
    how: How
    other: str = ""
    size: int = 0


class FileBackup:
    """The job's side: call the method that fits before a file is changed.

    A file is as old as its content (``st_mtime``): what was written since ``began`` (Unix time) is the job's own, or
    somebody else's who is at work on it now, and is left alone here. One from the future is old: no clock that
    the job has can have given it that age. But a file server's may be ahead, so such a file is kept once, and what
    this process itself makes is known by its name, whatever the time on it.

    While ``passing`` says so, what the job made in this launch and writes is noted too, to go again, as are folders
    it leaves empty: a script that is started many times, and resumes from a checkpoint if there is one, does not find
    that of the start before. A folder made while the job ``trains`` goes as a whole with the first such file in it:
    what is left of a checkpoint would be taken for one.

    What cannot be kept raises OSError, so that it is not changed. What only the job's own files need cannot always be
    noted either, as on a full disk: ``unnoted`` is then called with the reason, and the job goes on. What is made in
    ``traces`` is Stash's own.
    """

    def __init__(
        self,
        folder: RunFolder,
        began: float,
        passing: Callable[[], bool] = bool,
        unnoted: Callable[[str], object] = str,
        trains: Callable[[], bool] = bool,
        traces: str = "",
    ) -> None:
        self._run, self._began, self._passing, self._unnoted = (
            str(folder.run_path),
            began,
            passing,
            unnoted,
        )
        self._trains = trains
        with contextlib.suppress(
            OSError
        ):  # it is there, unless nothing but the run's own folder could be written
            os.mkdir(folder.kept.parent, 0o700)
        ledger = folder.kept if folder.kept.parent.is_dir() else folder.kept_here
        # still there if the job empties the temporary folder
        self._ledgers = os.path.realpath(ledger.parent)
        self._file = os.path.join(self._ledgers, ledger.name)
        self._home = os.getcwd()
        # Found now: asked from within an event, where tempfile may hold its lock, it would wait for itself.
        self._temporary = os.path.realpath(tempfile.gettempdir()) + os.sep
        caches = (os.path.expanduser(place) for place in ("~/.cache", "~/.triton"))
        self._staying = tuple(
            place + os.sep for place in (self._run, *caches, "/dev", "/proc", "/sys")
        )
        self._staying += (traces + os.sep,) if traces else ()
        self._sized: set[str] = set()
        self._once: set[str] = set()
        self._own: dict[str, bool] = {}
        """What this process made, and whether the job trained by then."""
        self._passed: dict[str, How] = {}
        self._new: set[str] = set()
        self._early: set[str] = set()

    def before_making(self, path: str) -> None:
        """A folder or a file is about to be made, unless it is there already."""
        real = os.path.realpath(path)
        if not os.path.lexists(real):
            self._note_made(real)
            self._note_own(real)
        elif real in self._own and not os.path.isdir(real):  # made before it passed
            self._note_made(real)

    def _note_made(self, path: str) -> None:
        if path not in self._passed and self._passing() and not self._is_staying(path):
            self._note_in_ledger(self._note_passing, path)

    def _note_in_ledger(self, write: Callable[[str, int], None], path: str) -> None:
        try:
            with self._locked_ledger() as ledger:
                write(path, ledger)
        except OSError as error:
            self._unnoted(os.strerror(error.errno or errno.EIO))

    def _note_passing(self, path: str, ledger: int, how: How = "made") -> None:
        """Note that it goes again; so do folders above it that this process made, if nothing is left in them."""
        folder = os.path.dirname(path)
        if folder in self._own:
            self._note_passing(folder, ledger, "whole" if self._own[folder] else "made")
        if self._passed.get(path) not in (how, "whole"):
            _write(ledger, BackupEntry(path, how))
            self._passed[path] = how

    def _is_staying(self, path: str) -> bool:
        """Whether the next start is to find it: caches, and what a library keeps in the temporary folder."""
        if f"{path}{os.sep}".startswith(self._staying) or "__pycache__" in path:
            return True
        if not path.startswith(self._temporary):
            return False
        at_work = self._home.startswith(self._temporary) and path.startswith(self._home + os.sep)
        return not at_work and _CACHES.match(path, len(self._temporary)) is not None

    def before_writing(self, path: str, truncates: bool, appends: bool = False) -> None:
        """Back up a file whose content is about to change: in place, or all of it if it ``truncates``."""
        real = os.path.realpath(path)
        self.before_making(real)
        status = self._old_status(real)
        if status is None or real in self._sized:
            return
        with self._locked_ledger() as ledger:
            status = self._old_status(real)  # another process of the job may have been faster
            if status is None:
                return
            if status.st_size == 0 or (appends and status.st_size > MAX_COPIED):
                self._sized.add(real)
                _write(ledger, BackupEntry(real, "sized", size=status.st_size))
            elif not truncates and status.st_size > MAX_COPIED and not _can_clone(real):
                self._sized.add(real)
                _write(ledger, BackupEntry(real, "left"))
            else:
                self._replace(real, status, truncates, ledger)

    def before_writing_beside(self, path: str, ends: Sequence[str]) -> None:
        """Back up files beside one of the user's that are parts of it; those that are not there yet go again."""
        real = os.path.realpath(path)
        if self._old_status(real) is None:
            return
        for part in (f"{real}{end}" for end in ends):
            if os.path.lexists(part):
                self.before_writing(part, truncates=False)
            elif part not in self._passed:
                with self._locked_ledger() as ledger:
                    self._note_passing(part, ledger)

    def before_removing(self, path: str, new_name: str = "") -> None:
        """The name is about to be gone, or to name another file; what is there may get a ``new_name``."""
        path = _real_name(path)
        if self._old_status(path) is not None:
            with self._locked_ledger() as ledger:
                if self._old_status(path) is not None:
                    kept = self._keep(path, ledger)
                    if new_name and kept.how == "aside":
                        _write(ledger, BackupEntry(new_name, "renamed", kept.other))
        self._own.pop(path, None)

    def before_moving(self, path: str, target: str) -> None:
        """Back up a file that is about to be renamed."""
        source, named = _real_name(path), _real_name(target)
        own, replaces, passes = source in self._own, named in self._own, source in self._passed
        if not os.path.isdir(path) or os.path.islink(path):
            self.before_removing(target)  # first, so that what was there is put back last
            self.before_removing(path, new_name=named)
            if (
                (passes or self._passing())
                and (replaces or not os.path.lexists(target))
                and not self._is_staying(named)
            ):
                self._note_in_ledger(self._note_passing, named)
        elif self._is_old(source, status := os.stat(path)):
            with self._locked_ledger() as ledger:
                _write(
                    ledger,
                    BackupEntry(
                        os.path.realpath(path), "moved", os.path.abspath(target), status.st_ino
                    ),
                )
        else:
            # What goes from a folder of the job's goes under its new name too, whichever process
            # made it.
            made = [
                kept.path
                for kept in entries_of(Path(self._file)) or ()
                if kept.how in ("made", "whole")
            ]
            parts = [""] if source in made and not os.path.lexists(named) else []
            parts += [
                path.removeprefix(source) for path in made if path.startswith(source + os.sep)
            ]
            for part in parts:
                self._note_own(named + part)
                self._note_in_ledger(self._note_passing, named + part)
        if own:
            self._note_own(named)

    def writes_new_file(self, path: str) -> None:
        """It is about to be written by a job that has begun to train, if it is not there yet."""
        path = os.path.abspath(path)
        if path in self._new or self._is_staying(path) or os.path.lexists(path):
            return
        self._new.add(path)
        self._note_in_ledger(lambda path, ledger: _write(ledger, BackupEntry(path, "new")), path)

    def before_appearing(self, path: str) -> None:
        """A file or a folder is about to be made, at whatever time: of those in a new folder only that is noted."""
        path = os.path.realpath(path)
        folders = [path]
        while (above := os.path.dirname(folders[-1])) != folders[-1] and not os.path.lexists(above):
            folders.append(above)
        while os.path.dirname(folders[-1]) in self._own:
            folders.append(os.path.dirname(folders[-1]))
        if folders[-1] in self._early or self._is_staying(path) or os.path.lexists(path):
            return
        self._early.add(folders[-1])
        self._note_in_ledger(
            lambda path, ledger: _write(ledger, BackupEntry(path, "early"), lasting=False),
            folders[-1],
        )

    def _note_own(self, real: str) -> None:
        self._own[real] = self._trains()
        if len(self._own) > MAX_REMEMBERED:
            del self._own[next(iter(self._own))]

    def _old_status(self, path: str) -> os.stat_result | None:
        """Its status, if it is a file or a link that was not written since the run began."""
        try:
            status = os.lstat(path)
        except OSError:
            return None
        is_file = stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)
        return (
            status
            if is_file and self._is_old(path, status) and not self._is_kept_elsewhere(path)
            else None
        )

    def _is_kept_elsewhere(self, path: str) -> bool:
        """Whether the original is another live run's to put back: what is there now that one's job wrote."""
        with contextlib.suppress(OSError):
            for folder in Path(self._ledgers).parent.iterdir():
                if (
                    str(folder) == self._ledgers
                    or not is_run(folder)
                    or has_owner(folder) is not True
                ):
                    continue
                entries = (
                    kept for ledger in folder.glob("*.jsonl") for kept in entries_of(ledger) or ()
                )
                if any(kept.path == path and kept.how in _ORIGINALS for kept in entries):
                    return True
        return False

    def _is_old(self, path: str, status: os.stat_result) -> bool:
        if path in self._own or os.path.basename(os.path.dirname(path)) == "__pycache__":
            return False  # what Python compiled it compiles again
        if status.st_mtime < self._began:
            return True
        return status.st_mtime > time.time() + _AHEAD and path not in self._once

    def _replace(self, path: str, status: os.stat_result, truncates: bool, ledger: int) -> None:
        """Let the original step aside for a file of the same rights, empty or with the same content.

        It stays where it is if it is copied, as where nothing may be made or replaced in its folder.
        """
        kept = self._keep(path, ledger)
        if kept.how == "copied":
            return
        fresh = _hidden_path(path)
        try:
            if truncates:
                os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            else:
                _copy_content(path, fresh)
            os.chmod(fresh, stat.S_IMODE(status.st_mode))
            with contextlib.suppress(OSError):
                os.chown(fresh, status.st_uid, status.st_gid)
            os.replace(fresh, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(fresh)
            if not isinstance(error, PermissionError):
                raise
            self._keep_copy(path, ledger)
            os.unlink(kept.other)

    def _keep(self, path: str, ledger: int) -> BackupEntry:
        self._once.add(path)
        for attic in self._iter_attics(path):
            kept = BackupEntry(
                path, "aside", os.path.join(attic, f"{os.path.basename(path)[:200]}.{_new_name()}")
            )
            _write(ledger, kept)
            try:
                os.makedirs(attic, mode=0o700, exist_ok=True)
                os.link(path, kept.other, follow_symlinks=False)
                return kept
            except OSError:
                continue  # another mount, no right to write there, no links on this file system
        if os.path.islink(path):
            kept = BackupEntry(path, "link", os.readlink(path))
            _write(ledger, kept)
            return kept
        return self._keep_copy(path, ledger)

    def _keep_copy(self, path: str, ledger: int) -> BackupEntry:
        kept = BackupEntry(path, "copied", os.path.join(self._ledgers, f"kept-{_new_name()}"))
        _write(ledger, kept)
        part, status = f"{kept.other}.part", os.stat(path)
        _copy_content(path, part)
        os.utime(part, ns=(status.st_atime_ns, status.st_mtime_ns))
        with open(part, "rb") as written:
            os.fsync(written.fileno())
        os.rename(part, kept.other)  # half a copy, as on a disk that is full, undoes nothing
        return kept

    def _iter_attics(self, path: str) -> Iterator[str]:
        """Folders where the original may go, the best first: beside the ledger, else far above on its file system.

        Never where the job works or next to it, if that can be helped: there scripts list, remove and commit. Nor in
        the temporary folder, which a reboot may empty.
        """
        folder = os.path.dirname(path)
        above = [folder, *map(str, Path(folder).parents)]
        lasting = [] if self._ledgers.startswith(os.path.realpath(self._run)) else [self._ledgers]
        for place in (*lasting, os.path.expanduser("~"), *reversed(above)):
            with contextlib.suppress(OSError):
                if os.stat(place).st_dev == os.stat(folder).st_dev and os.access(
                    place, os.W_OK | os.X_OK
                ):
                    yield os.path.join(place, _ATTIC + os.path.basename(self._run))

    @contextlib.contextmanager
    def _locked_ledger(self) -> Iterator[int]:
        """The ledger, while no other process of the job keeps anything."""
        descriptor = os.open(self._file, TO_ADD | os.O_CREAT, 0o600)
        try:
            wait_for_lock(descriptor)
            yield descriptor
        finally:
            os.close(descriptor)


def _write(ledger: int, kept: BackupEntry, lasting: bool = True) -> None:
    """Raises OSError unless the whole line is there: nothing is done that could not be undone.

    ``lasting``: it outlives a machine that fails.
    """
    add_lines(ledger, f"{json.dumps(asdict(kept))}\n".encode(), lasting)


def entries_of(ledger: Path) -> list[BackupEntry] | None:
    """The lines of a ledger, in the order of what was done; ``None`` if there is none.

    Of one that was cut short what it records was not done.
    """
    try:
        lines = whole_lines(ledger.read_bytes())
    except OSError:
        return None
    found = []
    for line in lines:
        with contextlib.suppress(ValueError, TypeError):
            found.append(BackupEntry(**json.loads(line)))
    return found


def _real_name(path: str) -> str:
    """The real path of the name itself, which may be a link's."""
    folder, name = os.path.split(path.rstrip(os.sep) or path)
    return os.path.join(os.path.realpath(folder), name)


def _new_name() -> str:
    return os.urandom(4).hex()


def _hidden_path(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name[:200]}.{_new_name()}")


def _copy_content(source: str, target: str) -> None:
    """Copy content, sharing its blocks where the file system can."""
    with open(source, "rb") as original, open(target, "xb") as copy:
        try:
            _clone_content(original.fileno(), copy.fileno())
        except OSError:
            import shutil

            shutil.copyfileobj(original, copy, 1 << 20)


def _clone_content(original: int, copy: int) -> None:
    """Let an empty file share the blocks of another; raises OSError where the file system cannot."""
    import fcntl  # here, since Windows has no such module, and imports what only Linux calls

    fcntl.ioctl(copy, _FICLONE, original)


def _can_clone(path: str) -> bool:
    """Whether the file system of ``path`` can share blocks between files."""
    trial = Path(_hidden_path(path))
    try:
        with open(path, "rb") as original, trial.open("xb") as clone:
            _clone_content(original.fileno(), clone.fileno())
    except OSError:
        return False
    finally:
        trial.unlink(missing_ok=True)
    return True
