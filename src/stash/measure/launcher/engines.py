"""What starts the ranks of a job: this process alone, torchrun, Slurm with torchrun on each node, or another.

Flags say so first, then what torchrun or Slurm set, then this machine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from stash.core.errors import UserError
from stash.core.membership import LOOPBACK
from stash.core.parsers import node_names
from stash.core.units import format_count
from stash.measure.launcher.job import Job
from stash.measure.launcher.rank_options import RankOptions

CommandLine = tuple[str, ...]


@dataclass(frozen=True)
class Cluster:
    """How many processes, where, and which engine starts them."""

    nproc: int = 1
    nnodes: int = 1
    node_rank: int | None = None
    rdzv_endpoint: str | None = None
    engine: str = "torchrun"
    all_devices: int = 1
    """Ranks to start on this machine, should the job turn out not to start as one plain process."""
    rdzv_id: str | None = field(default=None, repr=False)
    """A secret that all nodes share, by which they number themselves where ``node_rank`` is not known."""

    @property
    def is_inherited(self) -> bool:
        """This process already is one rank, started by somebody else (torchrun, srun)."""
        return self.engine == "inherited"

    def meeting_address(self, environment: Mapping[str, str]) -> str | None:
        """Where the launchers of one run meet, if it has several; they all give the same."""
        if self.is_inherited:
            return f"{environment.get('MASTER_ADDR')}:{environment.get('MASTER_PORT')}"
        return self.rdzv_endpoint if self.nnodes > 1 else None


def meeting_point(cluster: Cluster) -> tuple[str, int]:
    """Host and port where the nodes meet; raises UserError where none was given, or none that can be read."""
    if cluster.rdzv_endpoint is None:
        raise UserError(
            f"--nnodes {cluster.nnodes} needs --rdzv-endpoint HOST:PORT, the same on every node "
            "(HOST is the first node's address)"
        )
    host, _, port = cluster.rdzv_endpoint.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UserError(
            f"cannot read --rdzv-endpoint {cluster.rdzv_endpoint!r}; write it as HOST:PORT"
        )
    return host.strip("[]"), int(port)


def is_rank(environment: Mapping[str, str]) -> bool:
    """Whether a launcher has made this process one of its ranks; a number alone is left from somewhere else."""
    numbers = (environment.get(name, "") for name in ("RANK", "WORLD_SIZE"))
    return "MASTER_ADDR" in environment and all(number.isdecimal() for number in numbers)


def count_ranks(
    nproc: int | None, several: bool, devices: int, cores: int, environment: Mapping[str, str]
) -> int:
    """How many ranks to start on this machine: ``nproc``, else one, or one per device of a job of ``several``.

    Raises UserError if there is no room for as many as were asked for.
    """
    if nproc is None:
        nproc = (devices or (2 if cores % 2 == 0 else 1)) if several else 1
    if nproc < 1:
        raise UserError(f"--nproc-per-node {nproc}: at least one process is needed")
    if devices and nproc > devices:
        has = f"this machine has {format_count(devices, 'GPU')}"
        raise UserError(f"--nproc-per-node {nproc}: {has}; use {devices} or fewer")
    # Emulated accelerators sleep, so on a testbed ranks may share a core.
    if devices or "STASH_TESTBED" in environment:
        return nproc
    if nproc > cores:
        raise UserError(
            f"--nproc-per-node {nproc}: without GPUs each rank needs a core of its own, and this machine "
            f"has {cores}; use {cores} or fewer"
        )
    if cores % nproc:
        raise UserError(
            f"--nproc-per-node {nproc} does not divide the {cores} cores of this machine, so ranks would be "
            f"unequal; use {max(n for n in range(1, nproc) if cores % n == 0)}"
        )
    return nproc


_TRACES = ("TORCHELASTIC_RUN_ID", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
"""What known launchers set in addition."""


def stands_alone(environment: Mapping[str, str]) -> bool:
    """Whether nothing but the variables of a rank speaks for others: they may be left from somewhere else."""
    return int(environment["WORLD_SIZE"]) > 1 and not any(name in environment for name in _TRACES)


_PROGRAM = "stash.measure.torchrun"
_UNKNOWN = "K"
"""A node's number before the nodes have agreed on theirs (``numbering``)."""


def launch_command(job: Job, cluster: Cluster) -> CommandLine:
    """What to start on this machine; raises UserError where the nodes could not meet."""
    python, module = (sys.executable, "-u"), ("-m",) if job.kind == "module" else ()
    if cluster.engine != "torchrun":
        return (*python, *module, job.target, *job.arguments)
    # Without the two dashes torchrun takes the script's --log or --max for abbreviations of its own options.
    # Always with this node's number: torchrun's way to agree on them unpickles what it finds in an open store.
    host, port, number = LOOPBACK, 0, "0"
    if cluster.nnodes > 1:
        host, port = meeting_point(cluster)
        number = _UNKNOWN if cluster.node_rank is None else str(cluster.node_rank)
    options = (
        f"--nproc-per-node={cluster.nproc}",
        f"--nnodes={cluster.nnodes}",
        f"--node-rank={number}",
        f"--master-addr={host}",
        f"--master-port={port}",
    )
    return (*python, "-m", _PROGRAM, *options, *module, "--", job.target, *job.arguments)


_OF_A_STEP = (
    "SLURM_STEP_ID",
    "SLURM_STEP_NUM_NODES",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_NODELIST",
    "SLURM_NODEID",
)
"""What ``srun`` sets, all of them; some alone are left from another place."""


def _place_in_slurm(asked: RankOptions, environment: Mapping[str, str]) -> RankOptions:
    """What was asked, with the nodes, this node's rank and the meeting point that Slurm knows."""
    nodes, tasks = (
        int(environment["SLURM_STEP_NUM_NODES"]),
        int(environment["SLURM_STEP_NUM_TASKS"]),
    )
    if tasks != nodes:
        raise UserError(
            f"Slurm started {tasks} tasks on {nodes} nodes; start one per node "
            "(`srun --ntasks-per-node=1 stash profile …`): Stash starts the ranks itself"
        )
    if nodes == 1:
        return replace(asked, nnodes=1, node_rank=None)
    endpoint = asked.rdzv_endpoint
    if endpoint is None:
        port = 20000 + int(environment.get("SLURM_JOB_ID", "0")) % 20000
        endpoint = f"{next(node_names(environment['SLURM_STEP_NODELIST']))}:{port}"
    rank = int(environment["SLURM_NODEID"]) if asked.node_rank is None else asked.node_rank
    return replace(asked, nnodes=nodes, node_rank=rank, rdzv_endpoint=endpoint)


def choose_cluster(
    asked: RankOptions,
    several: bool,
    devices: int,
    cores: int,
    environment: Mapping[str, str] = os.environ,
) -> Cluster:
    """The first that is in charge here: a launcher around us, torchrun, one plain process.

    ``several``: the job is known to need one process per device. ``devices`` and ``cores``: that this process may use.
    Raises UserError where wish and machine do not fit.
    """
    if is_rank(environment) and asked.nproc_per_node is None and asked.nnodes is None:
        return Cluster(
            nproc=int(environment.get("LOCAL_WORLD_SIZE", "1")),
            node_rank=int(environment.get("GROUP_RANK", "0")),
            engine="inherited",
        )
    if asked.nnodes is None and all(name in environment for name in _OF_A_STEP):
        asked = _place_in_slurm(asked, environment)
    nnodes, node_rank = asked.nnodes or 1, asked.node_rank
    if node_rank is not None and not 0 <= node_rank < nnodes:
        raise UserError(
            f"--node-rank {node_rank} is not one of the {nnodes} nodes; use 0 to {nnodes - 1}"
        )
    wanted = asked.nproc_per_node
    nproc = count_ranks(wanted, several or nnodes > 1, devices, cores, environment)
    # One rank alone is a plain process: a script that finds RANK set may well take its path for CUDA. Inside another
    # launcher it would find that one's, so there torchrun gives it its own.
    if nproc > 1 or nnodes > 1 or is_rank(environment):
        return Cluster(nproc, nnodes, node_rank, asked.rdzv_endpoint, rdzv_id=asked.rdzv_id)
    every = count_ranks(wanted, True, devices, cores, environment)
    return Cluster(nproc, engine="local", all_devices=every)
