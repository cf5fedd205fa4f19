"""Where ``stash profile`` itself was started: alone, on one of several nodes, or already as one rank."""

from __future__ import annotations

import os
from collections.abc import Mapping

from stash.base.errors import UserError
from stash.measure.launch.request import Cluster


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
    inside = _already_a_rank(environment)
    if inside is not None and nproc is None and nnodes is None:
        return inside
    if nnodes is None and "SLURM_STEP_ID" in environment:  # inside srun
        nnodes, node_rank, endpoint = _slurm(environment, node_rank, endpoint)
    nnodes = nnodes or 1
    if node_rank is not None and not 0 <= node_rank < nnodes:
        raise UserError(f"--node-rank {node_rank} is not one of the {nnodes} nodes; use 0 to {nnodes - 1}")
    if nproc is None:
        nproc = (devices or max(1, min(cores, 2))) if ranks else 1
    if nproc < 1:
        raise UserError(f"--nproc-per-node {nproc}: at least one process is needed")
    if devices and nproc > devices:
        raise UserError(f"--nproc-per-node {nproc}: this machine has {devices} GPUs; use {devices} or fewer")
    # Emulated accelerators sleep, so on a testbed ranks may share a core.
    emulated = "STASH_TESTBED" in environment
    if not devices and nproc > cores and not emulated:
        raise UserError(
            f"--nproc-per-node {nproc}: without GPUs each rank needs a core of its own, and this machine "
            f"has {cores}; use {cores} or fewer"
        )
    if not devices and cores % nproc and not emulated:
        raise UserError(
            f"--nproc-per-node {nproc} does not divide the {cores} cores of this machine, so ranks would be "
            f"unequal; use {max(n for n in range(1, nproc) if cores % n == 0)}"
        )
    return Cluster(nproc, nnodes, node_rank, endpoint, torchrun=ranks or nproc > 1 or nnodes > 1)


def _already_a_rank(environment: Mapping[str, str]) -> Cluster | None:
    if "RANK" in environment and "WORLD_SIZE" in environment and "MASTER_ADDR" in environment:
        return Cluster(
            nproc=int(environment.get("LOCAL_WORLD_SIZE", "1")),
            node_rank=int(environment.get("GROUP_RANK", "0")),
            inherited=True,
        )
    return None


def _slurm(
    environment: Mapping[str, str], node_rank: int | None, endpoint: str | None
) -> tuple[int, int | None, str | None]:
    nodes, tasks = int(environment["SLURM_STEP_NUM_NODES"]), int(environment["SLURM_STEP_NUM_TASKS"])
    if tasks != nodes:
        raise UserError(
            f"Slurm started {tasks} tasks on {nodes} nodes; start one per node "
            "(`srun --ntasks-per-node=1 stash profile …`): Stash starts the ranks itself"
        )
    if nodes == 1:
        return 1, None, endpoint
    rank = int(environment["SLURM_NODEID"]) if node_rank is None else node_rank
    if endpoint is None:
        nodelist = environment["SLURM_STEP_NODELIST"]
        port = 20000 + int(environment.get("SLURM_JOB_ID", "0")) % 20000
        endpoint = f"{_first_host(nodelist)}:{port}"
    return nodes, rank, endpoint


def _first_host(nodelist: str) -> str:
    """The first name of ``n[3-5,9],m1``: ``n3``."""
    head, bracket, rest = nodelist.partition("[")
    if not bracket or "," in head:
        return nodelist.split(",", maxsplit=1)[0]
    return head + rest.split("]")[0].split(",")[0].split("-")[0]
