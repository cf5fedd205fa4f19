"""A wall clock that jumps in every process that has this on its path, once the file ``jump`` says by how much.

The machine's own clock is left alone: others use it. FAULTS_JUMP names the file; with FAULTS_JUMP_OF=job only the
processes of the profiled job have such a clock.
"""

import os
import time

_real = time.time


def _jumped():
    try:
        jump = os.open(os.environ["FAULTS_JUMP"], os.O_RDONLY)
    except OSError:
        return _real()
    try:
        kind, seconds = os.read(jump, 99).decode().split()
    finally:
        os.close(jump)
    return float(seconds) if kind == "stand" else _real() + float(seconds)


if "STASH_ORDERS" in os.environ or os.environ.get("FAULTS_JUMP_OF") != "job":
    time.time = _jumped
