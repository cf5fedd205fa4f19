"""A run, described: the exact command and environment, before anything is started."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from stash.measure.launch.engines import ENGINES
from stash.measure.launch.engines.base import Cluster, is_rank
from stash.measure.launch.job import Job
from stash.measure.run.orders import VARIABLE

_TORCHRUNS_FOLDER = "PET_LOG_DIR"
"""Torchrun's option --log-dir, as it reads it from the environment; so does a launcher that is built on it."""
_PROMPT = "PYTHONINSPECT"
"""After a script's end, also that by an error, Python would ask for more, and call it success."""
_THREADS = "OMP_NUM_THREADS"
_OF_A_RANK = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
"""A process that is started alone inside another launcher is no rank of that."""
SITE = Path(__file__).resolve().parent.parent / "agent" / "site"


@dataclass(frozen=True)
class Request:
    """The command of one launch, the variables added to its environment, and those that are left out of it."""

    argv: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = (_PROMPT,)

    def describe(self) -> str:
        """As one could paste it into a shell."""
        settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in sorted(self.variables.items()))
        return f"{settings} {shlex.join(self.argv)}".strip()

    def environment(self) -> dict[str, str]:
        """The whole environment of the launch."""
        kept = {name: value for name, value in os.environ.items() if name not in self.without}
        return {**kept, **self.variables}


def request(job: Job, cluster: Cluster, orders: Path, threads: int | None = None) -> Request:
    """The launch of ``job`` on ``cluster`` under the orders in that file; ``threads``: of a rank, if not the user's.

    What is added tells the agent where to look and torchrun where to log, and has Python write its output at once.
    """
    variables = {VARIABLE: str(orders), "PYTHONPATH": _python_path(), "PYTHONUNBUFFERED": "1"}
    if _TORCHRUNS_FOLDER not in os.environ:  # else it leaves an empty one in the temporary folder at every start
        variables[_TORCHRUNS_FOLDER] = str(orders.parent / "torchrun")
    if job.kind == "command":  # the user's own launcher
        return Request((job.target, *job.arguments), variables)
    if threads is not None and _THREADS not in os.environ:
        variables[_THREADS] = str(threads)
    alone_among_ranks = cluster.engine == "local" and is_rank(os.environ)
    without = (_PROMPT, *_OF_A_RANK) if alone_among_ranks else (_PROMPT,)
    return Request(ENGINES[cluster.engine].command(job, cluster), variables, without)


def threads_of_a_rank(job: Job, cluster: Cluster, cores: int, gpus: int) -> int | None:
    """The setting of OMP_NUM_THREADS that Stash adds for the ranks of a whole job; None where it adds none.

    torchrun sets 1 for several ranks. A rank that is started alone, for a rung of its own, is to have no more threads
    than it has among the others. Workloads of the zoo share out the cores of a machine without GPUs.
    """
    if cluster.engine != "torchrun" or cluster.nproc == 1:
        return None
    return max(1, cores // cluster.nproc) if job.of_zoo and gpus == 0 else 1


def _python_path() -> str:
    before = os.environ.get("PYTHONPATH")
    return str(SITE) if not before else f"{SITE}{os.pathsep}{before}"
