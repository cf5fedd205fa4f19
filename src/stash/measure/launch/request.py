"""A run, described: the exact command and environment, before anything is started."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path

from stash.base.errors import UserError
from stash.measure.launch.job import Job
from stash.measure.run import orders as plans

SITE = Path(__file__).resolve().parent.parent / "agent" / "site"


@dataclass(frozen=True)
class Cluster:
    """How many processes, and where: torchrun's words. ``nproc`` of None: one per device."""

    nproc: int = 1
    nnodes: int = 1
    node_rank: int | None = None
    rdzv_endpoint: str | None = None
    inherited: bool = False
    """This process already is one rank, started by somebody else (torchrun, srun)."""
    torchrun: bool = True
    """The job is to be started by torchrun; else as one plain process."""


@dataclass(frozen=True)
class Request:
    """The command of one launch and the variables added to its environment."""

    argv: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)

    def describe(self) -> str:
        """As one could paste it into a shell."""
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in sorted(self.variables.items()))
        return f"{settings} {shlex.join(self.argv)}".strip()

    def environment(self) -> dict[str, str]:
        """The whole environment of the launch."""
        return {**os.environ, **self.variables}


def request(job: Job, cluster: Cluster, plan: Path, cores: int, gpus: int) -> Request:
    """The launch of ``job`` on ``cluster`` under the plan in that file."""
    variables = {plans.VARIABLE: str(plan), "PYTHONPATH": _python_path(), "PYTHONUNBUFFERED": "1"}
    if gpus == 0 and "OMP_NUM_THREADS" not in os.environ and job.kind != "command":
        variables["OMP_NUM_THREADS"] = str(max(1, cores // cluster.nproc))
    target = ("-m", job.target) if job.kind == "module" else (job.target,)
    if job.kind == "command":
        return Request((job.target, *job.arguments), variables)
    python = (sys.executable, "-u")
    if cluster.inherited or not cluster.torchrun:
        return Request((*python, *target, *job.arguments), variables)
    return Request((*python, "-m", "torch.distributed.run", *_torchrun(cluster), *target, *job.arguments), variables)


def _torchrun(cluster: Cluster) -> tuple[str, ...]:
    options = [f"--nproc-per-node={cluster.nproc}"]
    if cluster.nnodes == 1:
        return (*options, "--standalone")
    if cluster.rdzv_endpoint is None:
        raise UserError(
            f"--nnodes {cluster.nnodes} needs --rdzv-endpoint HOST:PORT, the same on every node "
            "(HOST is the first node's address)"
        )
    options += [f"--nnodes={cluster.nnodes}"]
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


def _python_path() -> str:
    before = os.environ.get("PYTHONPATH")
    return str(SITE) if not before else f"{SITE}{os.pathsep}{before}"
