"""Ends this process when its launcher is gone, however that died: nothing of a profile outlives it."""

from __future__ import annotations

import os
import threading
import time


def outlive_not(launcher_pid: int) -> None:
    """Watch the launcher from a thread of its own, every second."""

    def watch() -> None:
        while not _gone(launcher_pid):
            time.sleep(1.0)
        _end_children()
        os._exit(1)

    if _gone(launcher_pid):  # a launcher of another PID namespace (a container) cannot be watched
        return
    threading.Thread(target=watch, name="stash-launcher-watch", daemon=True).start()


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _end_children() -> None:
    """End this process's own children: a loader's workers would notice only seconds later."""
    import psutil

    for child in psutil.Process().children(recursive=True):
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
