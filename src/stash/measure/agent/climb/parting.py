"""How a rank parts from its job: it waits to be ended, so that nothing that comes after it begins unnoticed.

What a shell script or another launcher does once training has ended is not known here; the launcher ends all of it
together with the ranks. Waiting has an end of its own, for ranks that no launcher can reach.
"""

from __future__ import annotations

import os
import sys
import time

from stash.measure.run.folder import RunFolder

_PATIENCE = 60.0
_TICK = 0.02


class Parting:
    """One rank's way out of the launch in ``folder``."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def here(self) -> None:
        """Part in the middle of the script, before it could evaluate or save what was trained; never returns."""
        sys.stdout.flush()
        sys.stderr.flush()
        self._folder.parked().touch()
        time.sleep(_PATIENCE)
        os._exit(1)  # a command that is to follow only a success does not

    def at_exit(self) -> None:
        """Part where the script has ended by itself; returns once nothing else of the job can act on that."""
        self._folder.exiting().touch()
        deadline = time.monotonic() + _PATIENCE
        while not self._folder.released.exists() and time.monotonic() < deadline:
            time.sleep(_TICK)
