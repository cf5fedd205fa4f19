"""torchrun on this machine, and the same command on each of the others: the store on the first of them joins them."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from stash.base.errors import UserError
from stash.base.routes import LOOPBACK
from stash.measure.launch.engines.base import (
    Asked,
    Cluster,
    CommandLine,
    Machine,
    is_rank,
    meeting_point,
    ranks_here,
)
from stash.measure.launch.job import Job

_PROGRAM = "stash.measure.torchrun"
_UNKNOWN = "K"
"""A node's number before the nodes have agreed on theirs (``numbering``)."""


class Torchrun:
    """In charge where there are to be several ranks.

    One alone is a plain process: a script that finds RANK set may well take its path for CUDA. Inside another
    launcher it would find that one's, so there torchrun gives it its own.
    """

    def cluster(self, asked: Asked, machine: Machine, environment: Mapping[str, str]) -> Cluster | None:
        nnodes = asked.nnodes or 1
        if asked.node_rank is not None and not 0 <= asked.node_rank < nnodes:
            raise UserError(f"--node-rank {asked.node_rank} is not one of the {nnodes} nodes; use 0 to {nnodes - 1}")
        nproc = ranks_here(asked, machine, environment)
        if nproc == 1 and nnodes == 1 and not is_rank(environment):
            return None
        return Cluster(nproc, nnodes, asked.node_rank, asked.endpoint, engine="torchrun", rdzv_id=asked.rdzv_id)

    def command(self, job: Job, cluster: Cluster) -> CommandLine:
        module = ("-m",) if job.kind == "module" else ()
        # Without the dashes torchrun takes the script's --log or --max for abbreviations of its own options.
        own = (*_options(cluster), *module, "--")
        return (sys.executable, "-u", "-m", _PROGRAM, *own, job.target, *job.arguments)


def _options(cluster: Cluster) -> CommandLine:
    """Always with every node's number: torchrun's way to agree on them unpickles what it finds in an open store."""
    host, port, number = LOOPBACK, 0, "0"
    if cluster.nnodes > 1:
        host, port = meeting_point(cluster)
        number = _UNKNOWN if cluster.node_rank is None else str(cluster.node_rank)
    return (
        f"--nproc-per-node={cluster.nproc}", f"--nnodes={cluster.nnodes}", f"--node-rank={number}",
        f"--master-addr={host}", f"--master-port={port}",
    )  # fmt: skip
