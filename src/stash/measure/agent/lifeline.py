"""Ends this process when its launcher is gone, however that died: nothing of a profile outlives it.

A thread looks once a second, which costs some microseconds. Code that holds Python's lock for long (a library that
loads) delays it for so long; a forked process has no such thread, and is ended with the one it was forked from.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress

from stash.measure.linux.processes import carrying
from stash.measure.run.orders import VARIABLE, Orders
from stash.measure.run.owner import owned

_PERIOD = 1.0
_SWEEPS = 3


def outlive_not(orders: Orders) -> None:
    """Watch the launcher from now on; not where it is out of sight (another machine's, on a shared file system)."""
    run = orders.files.run
    if owned(run) is None:
        return

    def watch() -> None:
        while owned(run) is not False:
            time.sleep(_PERIOD)
        try:
            _end_the_others()
        finally:
            os._exit(1)

    threading.Thread(target=watch, name="stash-launcher-watch", daemon=True).start()


def _end_the_others() -> None:
    """End all that was started under the same orders: forks, shells, what lost its parent."""
    orders = os.environ.get(VARIABLE, "")
    for _ in range(_SWEEPS):  # one that is ended may just have started another
        for process in carrying(VARIABLE, orders):
            if process != os.getpid():
                with suppress(OSError):
                    os.kill(process, signal.SIGKILL)
