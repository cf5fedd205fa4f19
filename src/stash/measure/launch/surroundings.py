"""Where ``stash profile`` itself was started: alone, on one of several nodes, or already as one rank."""

from __future__ import annotations

import os
from collections.abc import Mapping

from stash.measure.launch.engines import ENGINES
from stash.measure.launch.engines.base import Asked, Cluster, Machine


def cluster(
    ranks: bool,
    nproc: int | None,
    nnodes: int | None,
    node_rank: int | None,
    endpoint: str | None,
    devices: int,
    cores: int,
    environment: Mapping[str, str] = os.environ,
) -> Cluster:
    """The cluster for a job: flags first, else what torchrun or Slurm set, else this machine's devices.

    ``ranks`` says whether the job is to be started once per device; raises UserError when the wish and
    the machine do not fit.
    """
    asked, machine = Asked(ranks, nproc, nnodes, node_rank, endpoint), Machine(devices, cores)
    found = (engine.cluster(asked, machine, environment) for engine in ENGINES.values())
    return next(cluster for cluster in found if cluster is not None)  # the last engine takes everything
