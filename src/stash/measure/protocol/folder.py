"""The folder of one launch: the name of every file in it, who writes it and who reads it. Standard library only.

    orders.json        launcher to agents     what is wanted of this launch (``orders``)
    journal.jsonl      leader to launcher     what was measured, one message a line (``journal``, ``messages``)
    stop               launcher to leader     is there once the launcher has seen enough
    beat.RANK.PID      rank to launcher       how many steps that rank has taken, and when the last one (``journal``)
    crash.NS.RANK.PID  rank to launcher       the traceback of the exception that ended it
    extra.PID          trainer to launcher    that a process trains besides those that are measured
    finished.PID       rank to launcher       that it has done its part, and waits inside its script to be ended
    exiting.PID        rank to launcher       that its script has ended by itself, and waits to be let go
    released           launcher to rank       is there once nothing can follow on the end of the script
    tally.*            rank and its workers   counters of what making batches read, in shared memory
    held.*             worker to its rank     data files that it keeps open or mapped (``agent/data/reads``)
    output.log         job to user            all that the job printed
    neighbours.json    rank to launcher       that the job is on several nodes, and where to listen (``orders``)
    invitation.json    launcher to leader     where launchers of other nodes can reach it (``orders``)
    meeting.json       rank to launcher       where all launchers meet (``orders``)
    copy.jsonl         rank to launcher       the leader's journal, on nodes that do not lead
    trial.RANK.json    rank to launcher       what that rank trained on in a trial of `stash fix` (``trial_changes``)
    discarded/         job, read by none      what experiment trackers insist on writing

The folders of one run's launches lie side by side; between them stand ``owner``, by which all know that the launcher
lives, ``kept``, which leads to the ledgers of the user's files that stepped aside for those of the job, one a launch
(``put_back``), and ``sockets``, through which the job's processes talk among themselves.
"""

from __future__ import annotations

import os
import re
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

TALLY = "tally."
"""How the names of the files of shared counters begin."""
KEPT = "kept"
"""The name in a run's folder of where its ledgers of kept files are."""
HELD = "held."
"""How the names of the files begin in which workers list what they keep open or mapped."""


MarkName = Literal["extra", "finished", "exiting"]
"""What an empty file named so says of a process: it trains besides those that are measured; it has done its part, and
waits inside its script to be ended; it has come to its own end, and waits there."""


class _File:
    """An attribute that is the path of a file in a launch's folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: RunFolder, kind: type[RunFolder]) -> Path:
        return folder.path / self._name


@dataclass(frozen=True)
class RunFolder:
    """One launch's folder on this machine."""

    path: Path

    orders = _File("orders.json")
    journal = _File("journal.jsonl")
    copy = _File("copy.jsonl")
    stop = _File("stop")
    released = _File("released")
    output = _File("output.log")
    discarded = _File("discarded")
    neighbours = _File("neighbours.json")
    invitation = _File("invitation.json")
    meeting = _File("meeting.json")
    kept_here = _File("kept.jsonl")
    """As ``kept``, of processes that do not see where that leads: of a container that shares this folder only."""

    @property
    def run_path(self) -> Path:
        """The folder of the whole run."""
        return self.path.parent

    @property
    def kept(self) -> Path:
        return self.run_path / KEPT / f"{self.path.name}.jsonl"

    @property
    def sockets(self) -> Path:
        return self.run_path / "sockets"

    def beat_file(self, rank: int) -> Path:
        """This process's sign of life as ``rank``."""
        return self.path / f"beat.{rank}.{os.getpid()}"

    def list_beat_files(self) -> dict[Path, int]:
        """Every sign of life, with its rank."""
        return {path: int(path.name.split(".")[1]) for path in self.path.glob("beat.*.*")}

    def has_beaten(self) -> bool:
        """Whether this process has given a sign of life."""
        return any(self.path.glob(f"beat.*.{os.getpid()}"))

    def list_silent_ranks(self) -> list[int]:
        """Ranks whose process is gone and has left no traceback."""
        crashed = {path.name.rpartition(".")[2] for path in self.list_crash_files()}
        left = {rank: path.name.rpartition(".")[2] for path, rank in self.list_beat_files().items()}
        return sorted(
            rank
            for rank, pid in left.items()
            if pid not in crashed and not Path("/proc", pid).exists()
        )

    def crash(self, rank: str) -> Path:
        """The file in which a rank that dies now leaves its traceback."""
        return self.path / f"crash.{time.monotonic_ns()}.{rank}.{os.getpid()}"

    def list_crash_files(self) -> list[Path]:
        """Tracebacks, the earliest first."""
        return sorted(self.path.glob("crash.*"))

    def mark(self, what: MarkName) -> None:
        """Leave the file that says so of this process."""
        (self.path / f"{what}.{os.getpid()}").touch()

    def list_marked(self, what: MarkName) -> dict[int, float]:
        """The processes that said so, and when (Unix time)."""
        return {int(path.suffix[1:]): path.stat().st_mtime for path in self.path.glob(f"{what}.*")}


def lock(descriptor: int, shared: bool = False) -> bool | None:
    """Lock an open file without waiting: False if another has, None if the file system has no locks.

    A shared lock is only kept out by one that is not.
    """
    import fcntl  # here, since Windows has no such module, and imports what only Linux calls

    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def unlock(descriptor: int) -> None:
    """Let go of the lock on an open file."""
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_UN)


def wait_for_lock(descriptor: int) -> None:
    """Lock an open file as soon as no other has; where the file system has no locks, do without."""
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        return


# Folders of ledgers of kept files, which outlive launcher and reboot (``put_back``).


def backup_places() -> list[str]:
    """The best first: the user's state directory, and what survives a reboot where that cannot be used."""
    state = os.environ.get("XDG_STATE_HOME", "")
    home = state if os.path.isabs(state) else os.path.expanduser("~/.local/state")
    own = [os.path.join(home, "stash", "kept")] if os.path.isabs(home) else []
    return [*own, f"/var/tmp/stash-{os.geteuid()}/kept"]


def somebody_kept() -> bool:
    """Whether there is any folder of a run."""
    for place in backup_places():
        try:
            if os.listdir(place):
                return True
        except OSError:
            continue
    return False


# The launcher of a run holds a lock on the file ``owner`` of the run's folder until it dies. The kernel lets go of it
# however its holder ended, and every process that sees the file sees the lock, also from another PID namespace (a
# container), where a process number says nothing. Another machine on a shared file system may not see it, so a lock
# taken under another kernel means nothing, unless this machine was started again since.

_FILE, _DRAFT = "owner", "owner.new"
_OWNED = b"The launcher of this Stash run lives while this file is locked, on kernel "
_OF = b" of "
_BOOT, _STAT = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/stat")


def claim(folder: Path) -> int:
    """Own a folder for as long as the descriptor returned is open, in this process or a fork of it."""
    descriptor = os.open(
        folder / _DRAFT, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644
    )
    os.write(descriptor, _OWNED + (_kernel_id() + _OF + host_name() if lock(descriptor) else b""))
    # it has its name once it is locked: it is never found without an owner
    (folder / _DRAFT).rename(folder / _FILE)
    return descriptor


def disown_folder(folder: Path) -> None:
    """Let the folder stay without an owner: from now on whether it has one is unknown."""
    (folder / _FILE).write_bytes(_OWNED)


def is_run(folder: Path) -> bool:
    """Whether a launcher has made this folder."""
    try:
        return (folder / _FILE).read_bytes().startswith(_OWNED)
    except OSError:
        return False


def list_runs(place: Path, names: str) -> list[Path]:
    """Folders of such names in a place that all users write to, which launchers of this user have made."""
    found = []
    for folder in place.glob(names):
        with suppress(OSError):  # gone by now
            status = folder.lstat()
            is_mine = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
            if is_mine and is_run(folder):
                found.append(folder)
    return sorted(found)


def has_owner(folder: Path) -> bool | None:
    """Whether the owner of a run's folder lives; a folder that is gone has none. None if that is unknown."""
    try:
        descriptor = os.open(folder / _FILE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        kernel, _, machine = os.read(descriptor, 500).removeprefix(_OWNED).partition(_OF)
        if not kernel or not _kernel_id():
            return None
        if (
            kernel != _kernel_id()
        ):  # of this name there is no other machine: nothing was written since this one started
            written = max(os.fstat(descriptor).st_mtime, folder.stat().st_mtime)
            return False if machine == host_name() and written < start_of_machine() else None
        free = lock(descriptor, shared=True)
        return None if free is None else not free
    finally:
        os.close(descriptor)


def machine_of(folder: Path) -> str:
    """The name of the machine whose launcher owns, or owned, a run's folder; empty if it does not say."""
    try:
        owner = (folder / _FILE).read_bytes()
    except OSError:
        return ""
    return owner.removeprefix(_OWNED).partition(_OF)[2].decode(errors="replace")


def host_name() -> bytes:
    """This machine's name."""
    return os.uname().nodename.encode()


def start_of_machine() -> float:
    """Unix time; 0 if it does not say."""
    try:
        found = re.search(r"^btime (\d+)$", _STAT.read_text(), re.M)
    except OSError:
        found = None
    return float(found[1]) if found else 0.0


def _kernel_id() -> bytes:
    """An identifier of this start of this kernel; empty if there is none."""
    try:
        return _BOOT.read_bytes().strip()
    except OSError:
        return b""
