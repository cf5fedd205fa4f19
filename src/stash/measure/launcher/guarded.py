"""The user's files while a job runs: whatever becomes of the launcher, what its job changed is put back.

The launcher itself does it at the end; if it dies, a guardian process does, and if that was killed too, the next
``stash`` command. Of what is kept, and how, the job's processes decide (``run.kept``).
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from stash.core.interrupts import postponed
from stash.measure.protocol.folder import KEPT
from stash.measure.protocol.kept_state import claimed_for, put_all_back

_GUARDIAN = Path(__file__).with_name("guardian.py")


class GuardedFiles:
    """A context that makes a place for what the job keeps, in the folder of a run."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._kept = run / KEPT
        self._claimed: int | None = None
        self._guardian: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> GuardedFiles:
        with postponed():
            made = claimed_for(self._run)
            if made is None:
                self._kept.mkdir(mode=0o700)  # that is what there is: it is lost if the temporary folder is
            else:
                (self._run / KEPT).symlink_to(made[0])
                self._kept, self._claimed = made
            with suppress(OSError):  # no process can be started: nor can the job
                self._guardian = subprocess.Popen(
                    (sys.executable, "-I", "-S", _GUARDIAN, str(os.getpid()), self._run, self._kept),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,  # what ends the launcher's group or session does not end it
                    pass_fds=() if self._claimed is None else (self._claimed,),  # it owns the place after us
                )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with postponed():
            put_all_back(self._kept)  # an interrupt may have come while a launch's files were
            if self._claimed is not None:
                (self._run / KEPT).unlink(missing_ok=True)
            if self._guardian is not None:
                self._guardian.kill()
                self._guardian.wait()
            if self._claimed is not None:
                os.close(self._claimed)
