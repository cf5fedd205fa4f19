"""``stash.schedule``: many jobs on unlike GPUs, from Python. Loads what it names on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["POLICIES", "max_min", "read_cluster", "read_jobs", "read_matrix", "simulate"]

if TYPE_CHECKING:
    from stash.schedule.job_policies import POLICIES, max_min
    from stash.schedule.jobs_file import read_jobs
    from stash.schedule.lab_file import read_cluster
    from stash.schedule.matrix_file import read_matrix
    from stash.schedule.simulate import simulate

_HOMES = {
    "POLICIES": "job_policies",
    "max_min": "job_policies",
    "read_cluster": "lab_file",
    "read_jobs": "jobs_file",
    "read_matrix": "matrix_file",
    "simulate": "simulate",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"stash.schedule.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'stash.schedule' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
