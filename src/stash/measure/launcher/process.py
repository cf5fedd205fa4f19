"""A run described before it starts, and one started launch: its input, its processes, its output, its end."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from stash.core.end_tree import end_at_once, end_tree, freeze
from stash.measure.launcher.diagnose import read_tail
from stash.measure.launcher.engines import Cluster, is_rank, launch_command
from stash.measure.launcher.job import Job
from stash.measure.linux.processes import find_by_variable, list_descendants, status_of
from stash.measure.protocol.folder import RunFolder
from stash.measure.protocol.journal import Beat, read_beats
from stash.measure.protocol.orders import VARIABLE

_TORCHRUNS_FOLDER = "PET_LOG_DIR"
"""Torchrun's option --log-dir, as it reads it from the environment; so does a launcher that is built on it."""
_PROMPT = "PYTHONINSPECT"
"""After a script's end, also that by an error, Python would ask for more, and call it success."""
_THREADS = "OMP_NUM_THREADS"
_OF_A_RANK = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
"""A process that is started alone inside another launcher is no rank of that."""
SITE = Path(__file__).resolve().parent.parent / "agent" / "site"


@dataclass(frozen=True)
class Request:
    """The command of one launch, the variables added to its environment, and those that are left out of it."""

    argv: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = (_PROMPT,)

    def describe(self) -> str:
        """The command as it could be pasted into a shell."""
        settings = " ".join(
            f"{name}={shlex.quote(value)}" for name, value in sorted(self.variables.items())
        )
        return f"{settings} {shlex.join(self.argv)}".strip()

    def environment(self) -> dict[str, str]:
        """The whole environment of the launch."""
        kept = {name: value for name, value in os.environ.items() if name not in self.without}
        return {**kept, **self.variables}


def make_request(job: Job, cluster: Cluster, orders: Path, threads: int | None = None) -> Request:
    """The launch of ``job`` on ``cluster`` under the orders in that file; ``threads``: of a rank, if not the user's.

    What is added shows the agent where to look and torchrun where to log, and has Python write its output at once.
    """
    path = os.pathsep.join(filter(None, (str(SITE), os.environ.get("PYTHONPATH"))))
    variables = {VARIABLE: str(orders), "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    if (
        _TORCHRUNS_FOLDER not in os.environ
    ):  # else it leaves an empty one in the temporary folder at every start
        variables[_TORCHRUNS_FOLDER] = str(orders.parent / "torchrun")
    if job.kind == "command":  # the user's own launcher
        return Request((job.target, *job.arguments), variables)
    if threads is not None and _THREADS not in os.environ:
        variables[_THREADS] = str(threads)
    alone_among_ranks = cluster.engine == "local" and is_rank(os.environ)
    without = (_PROMPT, *_OF_A_RANK) if alone_among_ranks else (_PROMPT,)
    return Request(launch_command(job, cluster), variables, without)


def threads_of_a_rank(job: Job, cluster: Cluster, cores: int, gpus: int) -> int | None:
    """The setting of OMP_NUM_THREADS that Stash adds for the ranks of a whole job; None where it adds none.

    torchrun sets 1 for several ranks. A rank that is started alone, for a rung of its own, is to have no more threads
    than it has among the others. Workloads of the zoo share out the cores of a machine without GPUs.
    """
    if cluster.engine != "torchrun" or cluster.nproc == 1:
        return None
    return max(1, cores // cluster.nproc) if job.is_zoo_workload and gpus == 0 else 1


# Standard input is a job's as without Stash, and at every start as much as can be. A file is read from the same place
# by every start. A terminal, a pipe or a socket is handed on as it is: what one start has read, the next does not
# find. Under torchrun every rank inherits it, as from torchrun itself.

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
        is_the_shells = False  # a terminal that somebody else reads, as in the background
        with contextlib.suppress(OSError):  # the terminal of another session
            is_the_shells = os.isatty(_STDIN) and os.tcgetpgrp(_STDIN) != os.getpgrp()
        yield subprocess.DEVNULL if is_the_shells else _STDIN
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


_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_GRACE = 10.0
"""Seconds for the supervisor to end, when nothing is left below it."""
_EXITING = 10.0
"""Seconds for a rank to end by itself that has come to its end."""
_TICK = 0.02


class Process:
    """A launch in a session of its own below a supervisor, its output in its folder."""

    def __init__(self, request: Request, folder: RunFolder) -> None:
        self.folder = folder
        self._orders = request.variables[VARIABLE]
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._first: int | None = None
        self._codes: dict[int, int] = {}
        self._unread = b""
        self._line, theirs = socket.socketpair()
        orders = f"{VARIABLE}={self._orders}"
        try:
            with theirs, folder.output.open("ab") as output, handed_on() as given:
                self._supervisor = subprocess.Popen(
                    # Without any of the job's own settings for Python.
                    (
                        sys.executable,
                        "-I",
                        "-S",
                        _SUPERVISOR,
                        str(theirs.fileno()),
                        orders,
                        *request.argv,
                    ),
                    # It does not carry the orders itself: whoever ends all that do must leave it to do its work.
                    env={
                        name: value
                        for name, value in request.environment().items()
                        if name != VARIABLE
                    },
                    stdin=given,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=(theirs.fileno(),),
                )
        except BaseException:
            self.stop()  # it may have been started all the same
            raise
        self._line.setblocking(False)

    def poll(self) -> int | None:
        """Exit status of what was started (the negative number of a signal), or ``None`` while it runs."""
        self._read_supervisor()
        if self._first in self._codes:
            return self._codes[self._first]
        return self._supervisor.poll() if self._supervisor is not None else None

    def _read_supervisor(self) -> None:
        """Read the supervisor's lines about processes that ended."""
        with contextlib.suppress(OSError):  # nothing new, or closed
            self._unread += self._line.recv(1 << 16)
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            number, *status = map(int, line.split())
            if status:
                self._codes[number] = os.waitstatus_to_exitcode(status[0])
            else:
                self._first = number

    def stop(self) -> None:
        """End the launch and everything it started: asked first, then by force."""
        if self._line.fileno() >= 0:
            end_tree(self._list_alive)
            self._read_supervisor()
            self._line.close()  # the supervisor ends what is left, if anything is, and itself
            if self._supervisor is None:
                return
            try:
                self._supervisor.wait(timeout=_GRACE)
            except subprocess.TimeoutExpired:
                self._supervisor.send_signal(signal.SIGKILL)
                self._supervisor.wait()

    def finish(self, exiting: Collection[int]) -> dict[int, int]:
        """End everything at once, so that nothing follows what has ended; exit codes of the processes named.

        Those have come to their own end and wait there: they go on to it while nothing else moves.
        """
        wanted = set(exiting) & set(self._list_alive())
        freeze(
            self._list_alive,
            {*wanted, *(child for number in wanted for child in list_descendants(number))},
        )
        self.folder.released.touch()
        found: dict[int, int] = {}
        deadline = time.monotonic() + _EXITING
        while wanted - found.keys() and time.monotonic() < deadline:
            self._read_supervisor()
            for number in wanted - found.keys():
                status = status_of(number)
                if number in self._codes:
                    found[number] = self._codes[number]
                elif status is not None and status.ended:
                    found[number] = status.code
            time.sleep(_TICK)
        end_at_once(self._list_alive)
        return found

    def _list_alive(self) -> list[int]:
        """Every process of this launch: below its supervisor, or with its orders, as those of another namespace."""
        below = list_descendants(self._supervisor.pid) if self._supervisor is not None else []
        return [
            *below,
            *(number for number in find_by_variable(VARIABLE, self._orders) if number not in below),
        ]

    def output(self) -> str:
        """The last the job printed so far."""
        return read_tail(self.folder.output)

    def crashes(self) -> list[str]:
        """Tracebacks of ranks that died of an exception, the earliest first."""
        return [read_tail(path) for path in self.folder.list_crash_files()]

    def silent(self) -> list[int]:
        """Ranks that are gone without a word."""
        return self.folder.list_silent_ranks()

    def beats(self) -> dict[int, Beat]:
        """How far each rank got."""
        return read_beats(self.folder)
