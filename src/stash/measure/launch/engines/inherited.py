"""``stash profile`` was itself started once per rank, by torchrun or srun: this process runs one of them."""

from __future__ import annotations

from collections.abc import Mapping

from stash.measure.launch.engines.base import Asked, Cluster, CommandLine, Machine, is_rank, plain
from stash.measure.launch.job import Job

_TRACES = ("TORCHELASTIC_RUN_ID", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
"""What known launchers set besides."""


def stands_alone(environment: Mapping[str, str]) -> bool:
    """Whether nothing but the variables of a rank speaks for others: they may be left from somewhere else."""
    return int(environment["WORLD_SIZE"]) > 1 and not any(name in environment for name in _TRACES)


class Inherited:
    """In charge where a launcher has set the variables of a rank, unless other numbers are asked for."""

    def cluster(self, asked: Asked, machine: Machine, environment: Mapping[str, str]) -> Cluster | None:
        if not is_rank(environment) or asked.nproc is not None or asked.nnodes is not None:
            return None
        return Cluster(
            nproc=int(environment.get("LOCAL_WORLD_SIZE", "1")),
            node_rank=int(environment.get("GROUP_RANK", "0")),
            engine="inherited",
        )

    def command(self, job: Job, cluster: Cluster) -> CommandLine:
        return plain(job)
