"""Stands between the launcher and one launch, as a process of its own: nothing of a launch outlives its launcher.

Linux hands it every orphan of the launch, so that all of it stays one tree whatever a process does to its environment
or session. It writes to the launcher how its children end, and when the launcher is gone, however that died, it ends
the tree. Knows nothing of what is launched. Standard library only: it has to be there before the job is.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_REQUESTS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_CANNOT_BE_RUN, _NOT_FOUND = 126, 127
"""Exit codes by which shells say so."""


def main(line: int, setting: str, *command: str) -> int:
    """Run ``command`` with ``setting`` (NAME=VALUE) in its environment, until the other end of ``line`` closes.

    Says ``PID`` once it was started, then ``PID STATUS`` of every child that ended (as ``os.wait`` has it). Requests
    to end wait until ``command`` was started: no handler raises in the middle of that.
    """
    from stash.core.end_tree import end_tree
    from stash.measure.linux.processes import list_descendants

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    launcher = socket.socket(fileno=line)
    launcher.set_inheritable(False)
    waker = _signal_numbers()
    name, _, value = setting.partition("=")
    try:
        first = subprocess.Popen(command, env={**os.environ, name: value})
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _CANNOT_BE_RUN
    try:
        launcher.sendall(f"{first.pid}\n".encode())
        while launcher not in select.select([launcher, waker], [], [])[0]:
            requests = [number for number in waker.recv(4096) if number in _REQUESTS]
            if requests:
                return 128 + requests[0]
            launcher.sendall(
                "".join(f"{child} {status}\n" for child, status in _reap_children()).encode()
            )
    except OSError:
        pass  # the launcher was gone already
    finally:
        end_tree(lambda: list_descendants(os.getpid()))
    return 0


def _signal_numbers() -> socket.socket:
    """What the numbers of signals can be read from: a child has ended, or this process is to end the launch."""
    readable, waker = socket.socketpair()
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.detach())
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    for number in _REQUESTS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup; the job inherits that
            signal.signal(number, lambda number, frame: None)
    return readable


def _reap_children() -> list[tuple[int, int]]:
    """Children that have ended, with their status."""
    found: list[tuple[int, int]] = []
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if child == 0:
            return found
        found.append((child, status))


if __name__ == "__main__":
    # no search path is given: it is not the job's
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))
