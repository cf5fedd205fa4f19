"""Whether the launcher of a run lives: it holds a lock on the file ``owner`` of the run's folder until it dies.

The kernel lets go of the lock however its holder ended, and every process that sees the file sees the lock, also from
another PID namespace (a container), where a process number says nothing. Another machine on a shared file system may
not see it, so a lock taken under another kernel tells nothing, unless this machine was started again since.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from stash.measure.run.locks import lock

_FILE, _DRAFT = "owner", "owner.new"
_SAYS = b"The launcher of this Stash run lives while this file is locked, on kernel "
_OF = b" of "
_BOOT, _STAT = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/stat")


def claim(folder: Path) -> int:
    """Own a folder for as long as the descriptor returned is open, in this process or a fork of it."""
    descriptor = os.open(folder / _DRAFT, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    os.write(descriptor, _SAYS + (_kernel() + _OF + host() if lock(descriptor) else b""))
    (folder / _DRAFT).rename(folder / _FILE)  # it has its name once it is locked: nobody finds it without an owner
    return descriptor


def disown(folder: Path) -> None:
    """Let the folder stay without an owner; nobody can tell from now on."""
    (folder / _FILE).write_bytes(_SAYS)


def is_run(folder: Path) -> bool:
    """Whether a launcher has made this folder."""
    try:
        return (folder / _FILE).read_bytes().startswith(_SAYS)
    except OSError:
        return False


def owned(folder: Path) -> bool | None:
    """Whether the owner of a run's folder lives; a folder that is gone has none. None if that cannot be told."""
    try:
        descriptor = os.open(folder / _FILE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        kernel, _, machine = os.read(descriptor, 500).removeprefix(_SAYS).partition(_OF)
        if not kernel or not _kernel():
            return None
        if kernel != _kernel():  # no other machine of this name is at it: nobody wrote since this one was started
            written = max(os.fstat(descriptor).st_mtime, folder.stat().st_mtime)
            return False if machine == host() and written < _start_of_machine() else None
        free = lock(descriptor, shared=True)
        return None if free is None else not free
    finally:
        os.close(descriptor)


def machine_of(folder: Path) -> str:
    """The name of the machine whose launcher owns, or owned, a run's folder; empty if it does not say."""
    try:
        return (folder / _FILE).read_bytes().removeprefix(_SAYS).partition(_OF)[2].decode(errors="replace")
    except OSError:
        return ""


def host() -> bytes:
    """This machine's name."""
    return os.uname().nodename.encode()


def _start_of_machine() -> float:
    """Unix time; 0 if it does not say."""
    try:
        found = re.search(r"^btime (\d+)$", _STAT.read_text(), re.M)
    except OSError:
        found = None
    return float(found[1]) if found else 0.0


def _kernel() -> bytes:
    """What tells this start of this kernel from all others; empty if it does not say."""
    try:
        return _BOOT.read_bytes().strip()
    except OSError:
        return b""
