"""Locks on files, which the kernel lets go of when the last process that holds the descriptor ends."""

from __future__ import annotations


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


def wait_for_lock(descriptor: int) -> None:
    """Lock an open file as soon as no other has; where the file system has no locks, do without."""
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        return
