"""``stash.spot``: what a training script or a notebook needs of spot training. Loads what it names on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["Job", "checkpoint", "load_curve", "plan", "simulate"]

if TYPE_CHECKING:
    from stash.spot.planning import plan
    from stash.spot.policies.simulating import simulate
    from stash.spot.spot_files import load_curve
    from stash.spot.sync.resuming import checkpoint
    from stash.spot.train.elastic_job import ElasticJob as Job

_HOMES = {
    "Job": ("stash.spot.train.elastic_job", "ElasticJob"),
    "checkpoint": ("stash.spot.sync.resuming", "checkpoint"),
    "load_curve": ("stash.spot.spot_files", "load_curve"),
    "plan": ("stash.spot.planning", "plan"),
    "simulate": ("stash.spot.policies.simulating", "simulate"),
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        home, its_name = _HOMES[name]
        return getattr(import_module(home), its_name)
    raise AttributeError(f"module 'stash.spot' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
