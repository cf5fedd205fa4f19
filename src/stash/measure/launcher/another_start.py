"""Another way to start a job that failed before its first step: as ranks, where it cannot do without. Pure.

A script is started as it was typed, as one plain process. Whether it needs a launcher, its own error says best.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from stash.core.units import counted
from stash.measure.launcher.diagnose import Diagnosis, cause
from stash.measure.launcher.engines import Cluster

_NAMES = "RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT"
_WANTS_LAUNCHER = re.compile(
    rf"environment variable (?:{_NAMES}) expected|KeyError: '(?:{_NAMES})'|(?:environ|getenv)\b.*\b(?:{_NAMES})\b"
    r"|Default process group has not been initialized|No module named 'mpi4py'|torchrun|torch\.distributed\.launch"
)
"""In its traceback, or in what it printed last. (DeepSpeed asks MPI for what no launcher has told it.)"""


@dataclass(frozen=True)
class AnotherStart:
    """The cluster to start next, and what the profile says about it."""

    cluster: Cluster
    note: str


def as_ranks(cluster: Cluster, failure: Diagnosis) -> AnotherStart | None:
    """How to start a job that failed so as one plain process; None if its error does not ask for a launcher."""
    said = [line for line in failure.own_words.splitlines() if not line.lstrip().startswith('File "')]
    if cluster.nnodes > 1 or cluster.engine != "local" or not _WANTS_LAUNCHER.search("\n".join(said)):
        return None
    ranks, why = counted(cluster.all_devices, "rank"), cause(failure.own_words)
    return AnotherStart(
        replace(cluster, engine="torchrun", nproc=cluster.all_devices),
        f"the job was started by torchrun, as {ranks}, since as a plain process it failed ({why})",
    )


def as_one_process(cluster: Cluster, needs_launcher: bool) -> AnotherStart:
    """How to start a job whose ranks formed no process group; ``needs_launcher``: as a plain process it failed."""
    return AnotherStart(
        replace(cluster, engine="torchrun" if needs_launcher else "local", nproc=1, all_devices=1),
        f"started as {cluster.nproc} ranks, the script never called init_process_group: those were "
        f"{cluster.nproc} jobs and not one, so one process was started again, by itself, and measured",
    )
