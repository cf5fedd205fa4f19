"""What a command costs: its time and its memory, as the kernel counts them. Imports nothing large, see ``cost``."""

from __future__ import annotations

import os
import subprocess
import time


def cost(command: list[str]) -> tuple[float, float, float]:
    """Seconds on the wall and of processor time, and peak resident MB, of a child process; raises if it fails.

    The child of a large process starts with that process's peak, so this one must stay small.
    """
    began = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    if status:
        raise RuntimeError(f"{command} failed with status {status}")
    return time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3
