"""A real ``stash characterize`` of ``grid.yaml`` in a process of its own, and what the emulated machines need."""

import os
import signal
import subprocess
import sys
import time

import pytest
from runs import PATIENCE

from stash.lab.testbed import bed

_OBSTACLE = bed.why_no_testbed() or ("" if os.geteuid() == 0 else "emulated hosts need root")
needs_testbed = pytest.mark.skipif(bool(_OBSTACLE), reason=_OBSTACLE)
SMALL_MODEL = (
    "layers:\n- {name: only, bytes: 100kB, forward_seconds: 5ms, backward_seconds: 10ms}\n"
)


class Controller:
    """It runs; it ends at ``wait_for_end``, or by a signal at a moment."""

    def __init__(self, folder, study, **variables):
        self.folder = folder
        (folder / "grid.yaml").write_text(study)
        self.popen = subprocess.Popen(
            (sys.executable, "-m", "stash", "characterize", "grid.yaml"),
            cwd=folder,
            env={**os.environ, **variables, "STASH_HOME": str(folder / "home"), "NO_COLOR": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait_for_end(self, code=0):
        """What it printed, once it has ended with that exit code."""
        try:
            printed, _ = self.popen.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            pytest.fail(f"it did not end: {self.popen.communicate()[0]}")
        assert self.popen.returncode == code, printed
        return printed

    def wait_until(self, moment):
        """Until it has come so far; fails if it ends before."""
        deadline = time.monotonic() + PATIENCE
        while not moment():
            assert self.popen.poll() is None, self.popen.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def kill(self):
        self.popen.send_signal(signal.SIGKILL)
        self.popen.communicate()

    def logs(self):
        """What its cells printed."""
        return [path.read_text() for path in self.folder.glob("grid.study/cells/*/output.log")]
