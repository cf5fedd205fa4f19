"""One started launch: its processes, its output, its end. Nothing it started outlives it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import tempfile
from pathlib import Path

import psutil

from stash.measure.launch.request import Request
from stash.measure.run.beats import Beat, beats
from stash.measure.run.folder import RunFolder
from stash.measure.run.orders import VARIABLE

_GRACE = 3.0


class Process:
    """A launch in a process group of its own, its output in its folder."""

    def __init__(self, request: Request, folder: RunFolder) -> None:
        self.folder = folder
        self._orders = request.variables[VARIABLE]
        with folder.output.open("ab") as output:
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
        """Every process of this launch: they all inherited its orders, whoever their parent is by now."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                of_this_launch = process.pid == self.pid or process.environ().get(VARIABLE) == self._orders
                if of_this_launch and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def output(self) -> str:
        """All the job printed so far."""
        return self.folder.output.read_text(errors="replace") if self.folder.output.exists() else ""

    def crashes(self) -> list[str]:
        """Tracebacks of ranks that died of an exception, the earliest first."""
        return [path.read_text() for path in self.folder.crashes()]

    def beats(self) -> dict[int, Beat]:
        """How far each rank got."""
        return beats(self.folder)


def free_folder(parent: Path | None = None) -> Path:
    """A new folder for a run's files, private to the user."""
    return Path(tempfile.mkdtemp(prefix="stash-", dir=parent))
