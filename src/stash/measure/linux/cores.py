"""Giving each rank of a machine cores of its own, so that ranks on CPUs do not take them from each other."""

from __future__ import annotations

import os


def pin(local_rank: int, ranks: int) -> None:
    """Keep this process to its share of the cores, in order; what it starts inherits it.

    With more ranks than cores all keep all of them.
    """
    cores = sorted(os.sched_getaffinity(0))
    share = len(cores) // ranks
    if share >= 1:
        os.sched_setaffinity(0, cores[local_rank * share : (local_rank + 1) * share])
