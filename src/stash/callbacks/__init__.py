"""Callbacks that watch a run whose launch command cannot be changed, as ``stash watch`` would.

``from stash.callbacks.transformers import StashCallback`` or ``from stash.callbacks.lightning import StashCallback``.
Stash sees epochs, evaluation and checkpoints of these frameworks without them; a callback only starts the watch, from
inside the training process. It watches the first rank of each machine; `stash watch` watches all.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

_START_SECONDS, _END_SECONDS = 60.0, 30.0
"""For the watcher to begin, and to write what is left."""


class WatchedTraining:
    """A watch of this process between ``begin`` and ``end``, its record written by a process of its own.

    ``output`` is the record's file, else named after the process; ``options`` are more words of ``stash watch``.
    """

    def __init__(self, output: str | os.PathLike[str] | None = None, *options: str) -> None:
        self._words = (*(() if output is None else ("--output", os.fspath(output))), *options)
        self._watcher: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Start it, unless Stash listens already or this is not the machine's first rank. Training goes on."""
        from stash.measure.protocol.orders import ATTACHABLE, current_orders
        from stash.measure.protocol.watch_folder import attach_file
        from stash.monitor.entry import enter_process

        orders, own = current_orders(), str(os.getpid())
        if self._watcher is not None or (orders is not None and orders.files.path.is_dir()):
            return
        if os.environ.get("LOCAL_RANK", "0") != "0":
            return
        command = (sys.executable, "-m", "stash", "watch", "--quiet", "--attach", own, *self._words)
        self._watcher = subprocess.Popen(
            command, env={**os.environ, ATTACHABLE: own}, stdin=subprocess.DEVNULL
        )
        until = time.monotonic() + _START_SECONDS
        while self._watcher.poll() is None and time.monotonic() < until:
            with suppress(OSError):
                if text := attach_file(os.getpid()).read_text():
                    enter_process(str(Path(text).parent))
                    return
            time.sleep(0.05)
        print("stash: this run is not watched", file=sys.stderr)
        self.end()

    def end(self) -> None:
        """End the watch, and wait until its record is whole."""
        from stash.core.end_tree import end_tree
        from stash.measure.protocol.watch_folder import attach_file

        watcher, self._watcher = self._watcher, None
        if watcher is None:
            return
        attach_file(os.getpid()).unlink(missing_ok=True)
        with suppress(subprocess.TimeoutExpired):
            watcher.wait(_END_SECONDS)
        end_tree(lambda: [watcher.pid] if watcher.poll() is None else [])
