"""One started launch: its processes, its output, its end. Nothing it started outlives it."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
from pathlib import Path

import psutil

from stash.measure.launch.request import Request
from stash.measure.run import orders as plans
from stash.measure.run.stream import Heart

_GRACE = 3.0


class Process:
    """A launch in a process group of its own, its output in ``folder/output.log``."""

    def __init__(self, request: Request, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "output.log"
        self._plan = request.variables[plans.VARIABLE]
        with self.log.open("ab") as output:
            self._popen = subprocess.Popen(
                request.argv,
                env=request.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    def poll(self) -> int | None:
        """Exit status, or ``None`` while it runs."""
        return self._popen.poll()

    def stop(self) -> None:
        """End the launch and everything it started: asked first, then by force."""
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):  # a dying rank may still have forked
            alive = self._alive()
            if not alive:
                break
            for process in alive:
                with contextlib.suppress(psutil.Error):
                    process.send_signal(number)
            psutil.wait_procs(alive, timeout=_GRACE)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout=_GRACE)

    def _alive(self) -> list[psutil.Process]:
        """Every process of this launch: they all inherited its plan, whoever their parent is by now."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                of_this_launch = process.pid == self.pid or process.environ().get(plans.VARIABLE) == self._plan
                if of_this_launch and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def output(self) -> str:
        """All the job printed so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def crashes(self) -> list[str]:
        """Tracebacks of ranks that died of an exception, the earliest first."""
        return [path.read_text() for path in sorted(self.folder.glob("crash.*"))]

    def heartbeats(self) -> dict[int, tuple[int, int, float]]:
        """Per rank: process id, optimizer steps so far, and when the last one was (Unix time)."""
        beats: dict[int, tuple[int, int, float]] = {}
        for path in self.folder.glob("beat.*"):
            with contextlib.suppress(OSError, struct.error):
                pid, steps, when = struct.unpack(Heart.FORMAT, path.read_bytes())
                beats[int(path.name.split(".")[1])] = (pid, steps, when)
        return beats

    def last_sign_of_life(self) -> float | None:
        """When any rank last ended a step (Unix time), or ``None`` before the first."""
        return max((when for _, _, when in self.heartbeats().values()), default=None)


def free_folder(parent: Path | None = None) -> Path:
    """A new folder for a run's files, private to the user."""
    import tempfile

    return Path(tempfile.mkdtemp(prefix="stash-", dir=parent))


def own_pid() -> int:
    return os.getpid()
