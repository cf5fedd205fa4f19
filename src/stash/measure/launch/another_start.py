"""Another way to start a job that failed before its first step: with a launcher, or without. Pure.

torchrun tells each process its rank, and many scripts take that for a word to use CUDA; others cannot do without it.
Which kind a script is, its own error says best.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from stash.measure.launch.diagnose import Diagnosis
from stash.measure.launch.engines.base import Cluster

_NAMES = "RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT"
_WANTS_LAUNCHER = re.compile(
    rf"environment variable (?:{_NAMES}) expected|KeyError: '(?:{_NAMES})'|(?:environ|getenv)\b.*\b(?:{_NAMES})\b"
    r"|Default process group has not been initialized|No module named 'mpi4py'|torchrun|torch\.distributed\.launch"
)
"""In its traceback, or in what it printed last. (DeepSpeed asks MPI for what no launcher has told it.)"""
_WANTS_DEVICES = re.compile(r"cuda|nccl|nvidia|device_ids", re.I)


@dataclass(frozen=True)
class AnotherStart:
    """The cluster to start next, and what the profile says about it."""

    cluster: Cluster
    note: str


def another_start(cluster: Cluster, gpus: int, failure: Diagnosis) -> AnotherStart | None:
    """How to start a job that failed so before its first step; None if its error says nothing about that."""
    errors = [line for line in failure.own_words.splitlines() if not line.startswith((" ", "Traceback"))]
    error = errors[-1] if errors else ""
    if cluster.nnodes > 1:
        return None
    if cluster.engine == "local" and _WANTS_LAUNCHER.search(failure.own_words):
        return AnotherStart(
            replace(cluster, engine="torchrun"),
            f"the job was started by torchrun, since as a plain process it failed ({error})",
        )
    on_cpus = cluster.engine == "torchrun" and cluster.nproc > 1 and gpus == 0
    if on_cpus and any(_WANTS_DEVICES.search(line) for line in errors):
        return AnotherStart(
            replace(cluster, engine="local", nproc=1),
            f"the job was started as one plain process, since its {cluster.nproc} ranks on CPUs failed ({error})",
        )
    return None
