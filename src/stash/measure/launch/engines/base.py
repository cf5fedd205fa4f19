"""What all engines have in common: what they are asked, what they answer, and how a job is run by Python itself."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from stash.base.errors import UserError
from stash.measure.launch.job import Job

CommandLine = tuple[str, ...]


@dataclass(frozen=True)
class Asked:
    """What the user said, in torchrun's words. ``ranks``: the job is known to need one process per device."""

    ranks: bool
    nproc: int | None = None
    nnodes: int | None = None
    node_rank: int | None = None
    endpoint: str | None = None
    rdzv_id: str | None = None


@dataclass(frozen=True)
class Machine:
    """What there is to run on: CUDA devices, and cores this process may use."""

    devices: int
    cores: int


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
    def inherited(self) -> bool:
        """This process already is one rank, started by somebody else (torchrun, srun)."""
        return self.engine == "inherited"

    def meeting(self, environment: Mapping[str, str]) -> str | None:
        """Where the launchers of one run meet, if it has several; they all give the same."""
        if self.inherited:
            return f"{environment.get('MASTER_ADDR')}:{environment.get('MASTER_PORT')}"
        return self.rdzv_endpoint if self.nnodes > 1 else None


class Engine(Protocol):
    """One way to start ranks."""

    def cluster(self, asked: Asked, machine: Machine, environment: Mapping[str, str]) -> Cluster | None:
        """The cluster, if this engine is in charge here; raises UserError where wish and machine do not fit."""

    def command(self, job: Job, cluster: Cluster) -> CommandLine:
        """What to start on this machine; raises UserError where something is missing."""


def meeting_point(cluster: Cluster) -> tuple[str, int]:
    """Host and port where the nodes meet; raises UserError where none was given, or none that can be read."""
    if cluster.rdzv_endpoint is None:
        raise UserError(
            f"--nnodes {cluster.nnodes} needs --rdzv-endpoint HOST:PORT, the same on every node "
            "(HOST is the first node's address)"
        )
    host, _, port = cluster.rdzv_endpoint.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UserError(f"cannot read --rdzv-endpoint {cluster.rdzv_endpoint!r}; write it as HOST:PORT")
    return host.strip("[]"), int(port)


def plain(job: Job) -> CommandLine:
    """The job as one Python process."""
    module = ("-m",) if job.kind == "module" else ()
    return (sys.executable, "-u", *module, job.target, *job.arguments)


def is_rank(environment: Mapping[str, str]) -> bool:
    """Whether a launcher has made this process one of its ranks; a number alone is left from somewhere else."""
    numbers = (environment.get(name, "") for name in ("RANK", "WORLD_SIZE"))
    return "MASTER_ADDR" in environment and all(number.isdecimal() for number in numbers)


def ranks_here(asked: Asked, machine: Machine, environment: Mapping[str, str]) -> int:
    """How many ranks to start on this machine; raises UserError if it has no room for as many as were asked for."""
    nproc, devices, cores = asked.nproc, machine.devices, machine.cores
    if nproc is None:
        several = asked.ranks or (asked.nnodes or 1) > 1
        nproc = (devices or max(1, min(cores, 2))) if several else 1
    if nproc < 1:
        raise UserError(f"--nproc-per-node {nproc}: at least one process is needed")
    if devices and nproc > devices:
        raise UserError(f"--nproc-per-node {nproc}: this machine has {devices} GPUs; use {devices} or fewer")
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
