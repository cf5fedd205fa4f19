"""A run, described: the exact command and environment, before anything is started."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from stash.measure.launch.engines import ENGINES
from stash.measure.launch.engines.base import Cluster
from stash.measure.launch.job import Job
from stash.measure.run.orders import VARIABLE

_TORCHRUNS_FOLDER = "PET_LOG_DIR"
"""Torchrun's option --log-dir, as it reads it from the environment; so does a launcher that is built on it."""
_PROMPT = "PYTHONINSPECT"
"""After a script's end, also that by an error, Python would ask for more, and call it success."""
_OF_A_RANK = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
"""Whatever left them here, a process that is started alone is no rank of it."""
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


def request(job: Job, cluster: Cluster, orders: Path, cores: int, gpus: int) -> Request:
    """The launch of ``job`` on ``cluster`` under the orders in that file."""
    variables = {VARIABLE: str(orders), "PYTHONPATH": _python_path(), "PYTHONUNBUFFERED": "1"}
    if _TORCHRUNS_FOLDER not in os.environ:  # else it leaves an empty one in the temporary folder at every start
        variables[_TORCHRUNS_FOLDER] = str(orders.parent / "torchrun")
    if job.kind == "command":  # the user's own launcher
        return Request((job.target, *job.arguments), variables)
    if gpus == 0 and "OMP_NUM_THREADS" not in os.environ:
        variables["OMP_NUM_THREADS"] = str(max(1, cores // cluster.nproc))
    without = (_PROMPT, *_OF_A_RANK) if cluster.engine == "local" else (_PROMPT,)
    return Request(ENGINES[cluster.engine].command(job, cluster), variables, without)


def _python_path() -> str:
    before = os.environ.get("PYTHONPATH")
    return str(SITE) if not before else f"{SITE}{os.pathsep}{before}"
