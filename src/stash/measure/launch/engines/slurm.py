"""Slurm started ``stash profile`` once on each node of a step: it says where they are, torchrun starts the ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stash.base.errors import UserError
from stash.measure.launch.engines.base import Asked, Cluster, Machine
from stash.measure.launch.engines.torchrun import Torchrun

_OF_A_STEP = ("SLURM_STEP_ID", "SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST", "SLURM_NODEID")
"""What ``srun`` sets, all of them; some alone are left from another place."""


class Slurm(Torchrun):
    """In charge inside ``srun``, unless the number of nodes was given."""

    def cluster(self, asked: Asked, machine: Machine, environment: Mapping[str, str]) -> Cluster | None:
        if asked.nnodes is not None or any(name not in environment for name in _OF_A_STEP):
            return None
        return super().cluster(_placed(asked, environment), machine, environment)


def _placed(asked: Asked, environment: Mapping[str, str]) -> Asked:
    """What was asked, with the nodes, this node's rank and the meeting point that Slurm knows."""
    nodes, tasks = int(environment["SLURM_STEP_NUM_NODES"]), int(environment["SLURM_STEP_NUM_TASKS"])
    if tasks != nodes:
        raise UserError(
            f"Slurm started {tasks} tasks on {nodes} nodes; start one per node "
            "(`srun --ntasks-per-node=1 stash profile …`): Stash starts the ranks itself"
        )
    if nodes == 1:
        return replace(asked, nnodes=1, node_rank=None)
    endpoint = asked.endpoint
    if endpoint is None:
        port = 20000 + int(environment.get("SLURM_JOB_ID", "0")) % 20000
        endpoint = f"{_first_host(environment['SLURM_STEP_NODELIST'])}:{port}"
    rank = int(environment["SLURM_NODEID"]) if asked.node_rank is None else asked.node_rank
    return replace(asked, nnodes=nodes, node_rank=rank, endpoint=endpoint)


def _first_host(nodelist: str) -> str:
    """The first name of ``n[3-5,9],m1``: ``n3``."""
    head, bracket, rest = nodelist.partition("[")
    if not bracket or "," in head:
        return nodelist.split(",", maxsplit=1)[0]
    return head + rest.split("]")[0].split(",")[0].split("-")[0]
