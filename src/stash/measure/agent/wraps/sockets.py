"""Where ``multiprocessing`` has its sockets: in the run's folder, which is removed with all it holds.

It would make a folder in the temporary one and remove it when the process exits; processes that are ended leave
theirs. The temporary folder of the script itself is none of Stash's business.
"""

from __future__ import annotations

import os
from types import ModuleType

from stash.measure.protocol.orders import current

_LONGEST = 107 - len("/listener-xxxxxxxx")
"""Bytes of the folder's name: a socket's whole path may have 107 (unix(7))."""


def keep_in_run(module: ModuleType) -> None:
    """Set the folder that ``multiprocessing.util`` would make; processes started from here inherit it."""
    orders = current()
    if orders is None:
        return
    folder = orders.files.sockets
    if len(os.fsencode(folder)) <= _LONGEST:
        folder.mkdir(exist_ok=True)
        module.process.current_process()._config["tempdir"] = str(folder)
