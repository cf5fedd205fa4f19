"""What starts the ranks of a job: this process alone, torchrun, Slurm with torchrun on each node, or somebody else.

    engine.cluster(asked, machine, environment)   how many processes and where; None if this engine is not in charge
    engine.command(job, cluster)                  what to start on this machine

``cluster`` asks them in the order of ``ENGINES``: flags go first, then what torchrun or Slurm set, then what this
machine has. ``request`` uses the one that was found.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from stash.measure.launch.engines import inherited, local, slurm, torchrun
from stash.measure.launch.engines.base import Asked, Cluster, Engine, Machine

ENGINES: Mapping[str, Engine] = {
    "inherited": inherited.Inherited(),
    "slurm": slurm.Slurm(),
    "torchrun": torchrun.Torchrun(),
    "local": local.Local(),
}


def cluster(asked: Asked, machine: Machine, environment: Mapping[str, str] = os.environ) -> Cluster:
    """The cluster of the first engine that is in charge here; raises UserError where wish and machine do not fit."""
    found = (engine.cluster(asked, machine, environment) for engine in ENGINES.values())
    return next(cluster for cluster in found if cluster is not None)  # the last engine takes everything
