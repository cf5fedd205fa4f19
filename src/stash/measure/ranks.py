"""torchrun's own five options, shared by commands that start ranks, and the cluster that they ask for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

from stash.ui.options import option

if TYPE_CHECKING:
    from stash.measure.launcher.engines import Cluster

_RANKS = "Ranks (as torchrun's)"
NprocPerNode = Annotated[
    int | None, option("N", "Ranks on this machine; else one per GPU, or 2 on CPUs.", panel=_RANKS)
]
Nnodes = Annotated[int | None, option("N", "Machines; run the same command on each.", panel=_RANKS)]
NodeRank = Annotated[int | None, option("K", "Which machine this is, from 0.", panel=_RANKS)]
RdzvEndpoint = Annotated[
    str | None, option("HOST:PORT", "Where the machines meet: an address of machine 0.", panel=_RANKS)
]
RdzvId = Annotated[str | None, option("SECRET", "The same on all machines, instead of --node-rank.", panel=_RANKS)]


def cluster(
    nproc_per_node: int | None,
    nnodes: int | None,
    node_rank: int | None,
    endpoint: str | None,
    rdzv_id: str | None = None,
    ranks: bool = True,
) -> Cluster:
    """The cluster that these options ask for, of machines like this one; raises UserError.

    ``ranks`` says whether something is started once per device.
    """
    from stash.measure.host.gpus import count_gpus
    from stash.measure.launcher import engines
    from stash.measure.launcher.engines import Asked, Machine

    asked = Asked(ranks, nproc_per_node, nnodes, node_rank, endpoint, rdzv_id)
    return engines.cluster(asked, Machine(count_gpus(), len(os.sched_getaffinity(0))))
