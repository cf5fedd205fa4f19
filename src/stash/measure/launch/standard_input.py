"""What a job reads from standard input: the same as without Stash, and at every start as much as can be.

A file is read from the same place by every start. A terminal, a pipe or a socket is handed on as it is: what one
start has read, the next does not find. Under torchrun every rank inherits it, as from torchrun itself.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

_STDIN = 0


@contextmanager
def handed_on() -> Iterator[int]:
    """A descriptor of it for a process that is about to be started, or ``subprocess.DEVNULL``."""
    try:
        kind = os.fstat(_STDIN).st_mode
    except OSError:  # closed
        yield subprocess.DEVNULL
        return
    if not stat.S_ISREG(kind):
        yield subprocess.DEVNULL if _is_the_shells() else _STDIN
        return
    opened = None
    try:
        opened = os.open(f"/proc/self/fd/{_STDIN}", os.O_RDONLY | os.O_CLOEXEC)
        os.lseek(opened, os.lseek(_STDIN, 0, os.SEEK_CUR), os.SEEK_SET)
        yield opened
    except OSError:  # not to be opened again
        yield _STDIN
    finally:
        if opened is not None:
            os.close(opened)


def read_once() -> bool:
    """Whether a second start finds only what the first has left."""
    try:
        kind = os.fstat(_STDIN).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)


def on_terminal() -> bool:
    """Whether somebody can be asked."""
    return os.isatty(_STDIN) and not _is_the_shells()


def _is_the_shells() -> bool:
    """Whether it is a terminal that somebody else reads, as where this process was put into the background."""
    try:
        return os.isatty(_STDIN) and os.tcgetpgrp(_STDIN) != os.getpgrp()
    except OSError:  # the terminal of another session
        return False
