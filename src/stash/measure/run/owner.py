"""Whether the launcher of a run lives: it holds a lock on the file ``owner`` of the run's folder until it dies.

The kernel lets go of the lock however its holder ended, and every process that sees the file sees the lock, also from
another PID namespace (a container), where a process number says nothing. Another machine on a shared file system may
not see it, so a lock taken under another kernel tells nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

from stash.measure.run.locks import lock

_FILE, _DRAFT = "owner", "owner.new"
_SAYS = b"The launcher of this Stash run lives while this file is locked, on kernel "
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def claim(folder: Path) -> int:
    """Own a folder for as long as the descriptor returned is open, in this process or a fork of it."""
    descriptor = os.open(folder / _DRAFT, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    os.write(descriptor, _SAYS + (_kernel() if lock(descriptor) else b""))
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
        kernel = os.read(descriptor, 200).removeprefix(_SAYS)
        if not kernel or kernel != _kernel():
            return None
        free = lock(descriptor, shared=True)
        return None if free is None else not free
    finally:
        os.close(descriptor)


def _kernel() -> bytes:
    """What tells this start of this kernel from all others; empty if it does not say."""
    try:
        return _BOOT.read_bytes().strip()
    except OSError:
        return b""
