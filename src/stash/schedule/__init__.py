"""``stash.schedule``: many jobs on unlike GPUs, from Python. Loads what it names on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stash.core.front import make_lazy_access

__all__ = ["POLICIES", "max_min", "read_cluster", "read_jobs", "read_matrix", "simulate"]

if TYPE_CHECKING:
    from stash.schedule.allocation import POLICIES, max_min
    from stash.schedule.lab_files import read_cluster, read_jobs, read_matrix
    from stash.schedule.simulate import simulate

__getattr__, __dir__ = make_lazy_access(
    __name__,
    {
        "POLICIES": "stash.schedule.allocation",
        "max_min": "stash.schedule.allocation",
        "read_cluster": "stash.schedule.lab_files",
        "read_jobs": "stash.schedule.lab_files",
        "read_matrix": "stash.schedule.lab_files",
        "simulate": "stash.schedule.simulate",
    },
)
