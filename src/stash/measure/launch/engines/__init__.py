"""What starts the ranks of a job: this process alone, torchrun, Slurm with torchrun on each node, or somebody else.

    engine.cluster(asked, machine, environment)   how many processes and where; None if this engine is not in charge
    engine.command(job, cluster)                  what to start on this machine

Engines are asked in the order of ``ENGINES``; ``surroundings`` does so, ``request`` uses the one that was found.
"""

from __future__ import annotations

from collections.abc import Mapping

from stash.measure.launch.engines import inherited, local, slurm, torchrun
from stash.measure.launch.engines.base import Engine

ENGINES: Mapping[str, Engine] = {
    "inherited": inherited.Inherited(),
    "slurm": slurm.Slurm(),
    "torchrun": torchrun.Torchrun(),
    "local": local.Local(),
}
