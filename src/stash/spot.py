"""``stash.spot``: what a training script or a notebook needs of spot training. Loads what it names on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["Job", "checkpoint", "load_curve", "plan", "simulate"]

if TYPE_CHECKING:
    from stash.derive.spot.holding.simulating import simulate
    from stash.derive.spot.planning import plan
    from stash.elastic.job import ElasticJob as Job
    from stash.elastic.synchronous.resuming import checkpoint
    from stash.keep.curves import load_curve

_HOMES = {
    "Job": ("stash.elastic.job", "ElasticJob"),
    "checkpoint": ("stash.elastic.synchronous.resuming", "checkpoint"),
    "load_curve": ("stash.keep.curves", "load_curve"),
    "plan": ("stash.derive.spot.planning", "plan"),
    "simulate": ("stash.derive.spot.holding.simulating", "simulate"),
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        home, its_name = _HOMES[name]
        return getattr(import_module(home), its_name)
    raise AttributeError(f"module 'stash.spot' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
