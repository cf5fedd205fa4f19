"""torchrun on this machine, and the same command on each of the others: its rendezvous joins them."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from stash.base.errors import UserError
from stash.measure.launch.engines.base import Asked, Cluster, CommandLine, Machine, is_rank, ranks_here
from stash.measure.launch.job import Job


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
        return Cluster(nproc, nnodes, asked.node_rank, asked.endpoint, engine="torchrun")

    def command(self, job: Job, cluster: Cluster) -> CommandLine:
        module = ("-m",) if job.kind == "module" else ()
        # Without the dashes torchrun takes the script's --log or --max for abbreviations of its own options.
        own = (*_options(cluster), *module, "--")
        return (sys.executable, "-u", "-m", "torch.distributed.run", *own, job.target, *job.arguments)


def _options(cluster: Cluster) -> CommandLine:
    options: CommandLine = (f"--nproc-per-node={cluster.nproc}",)
    if cluster.nnodes == 1:
        return (*options, "--standalone")
    if cluster.rdzv_endpoint is None:
        raise UserError(
            f"--nnodes {cluster.nnodes} needs --rdzv-endpoint HOST:PORT, the same on every node "
            "(HOST is the first node's address)"
        )
    options += (f"--nnodes={cluster.nnodes}",)
    if cluster.node_rank is None:
        return (
            *options,
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={cluster.rdzv_endpoint}",
            "--rdzv-id=stash",
        )
    host, _, port = cluster.rdzv_endpoint.rpartition(":")
    if not host or not port.isdigit():
        raise UserError(f"cannot read --rdzv-endpoint {cluster.rdzv_endpoint!r}; write it as HOST:PORT")
    return (*options, f"--node-rank={cluster.node_rank}", f"--master-addr={host}", f"--master-port={port}")
