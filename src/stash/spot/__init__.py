"""``stash.spot``: what a training script or a notebook needs of spot training. Loads what it names on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stash.core.front import make_lazy_access

__all__ = ["Job", "checkpoint", "load_curve", "plan"]

if TYPE_CHECKING:
    from stash.spot.planning import plan
    from stash.spot.spot_files import load_curve
    from stash.spot.sync.resuming import checkpoint
    from stash.spot.train.elastic_job import ElasticJob as Job

__getattr__, __dir__ = make_lazy_access(
    __name__,
    {
        "Job": "stash.spot.train.elastic_job:ElasticJob",
        "checkpoint": "stash.spot.sync.resuming",
        "load_curve": "stash.spot.spot_files",
        "plan": "stash.spot.planning",
    },
)
