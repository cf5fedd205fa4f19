"""One started launch: its processes, its output, its end. Nothing it started outlives it."""

from __future__ import annotations

import contextlib
import signal
import subprocess

import psutil

from stash.measure.launch.request import Request
from stash.measure.linux.processes import carrying
from stash.measure.run.beats import Beat, beats
from stash.measure.run.folder import RunFolder
from stash.measure.run.orders import VARIABLE

_GRACE = 3.0


class Process:
    """A launch in a process group of its own, its output in its folder."""

    def __init__(self, request: Request, folder: RunFolder) -> None:
        self.folder = folder
        self._orders = request.variables[VARIABLE]
        try:
            with folder.output.open("ab") as output:
                self._popen = subprocess.Popen(
                    request.argv,
                    env=request.environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except KeyboardInterrupt:
            self._end()  # it may have been started all the same
            raise

    @property
    def pid(self) -> int:
        return self._popen.pid

    def poll(self) -> int | None:
        """Exit status, or ``None`` while it runs."""
        return self._popen.poll()

    def stop(self) -> None:
        """End the launch and everything it started: asked first, then by force."""
        self._end()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout=_GRACE)

    def _end(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):  # a dying rank may still have forked
            alive = self._alive()
            if not alive:
                break
            for process in alive:
                with contextlib.suppress(psutil.Error):
                    process.send_signal(number)
            psutil.wait_procs(alive, timeout=_GRACE)

    def _alive(self) -> list[psutil.Process]:
        """Every process of this launch: they all inherited its orders, whoever their parent is by now."""
        found = []
        for number in carrying(VARIABLE, self._orders):
            with contextlib.suppress(psutil.Error):
                found.append(psutil.Process(number))
        return found

    def output(self) -> str:
        """All the job printed so far."""
        return self.folder.output.read_text(errors="replace") if self.folder.output.exists() else ""

    def crashes(self) -> list[str]:
        """Tracebacks of ranks that died of an exception, the earliest first."""
        return [path.read_text(encoding="utf-8", errors="replace") for path in self.folder.crashes()]

    def silent(self) -> list[int]:
        """Ranks that are gone without a word."""
        return self.folder.silent()

    def beats(self) -> dict[int, Beat]:
        """How far each rank got."""
        return beats(self.folder)
