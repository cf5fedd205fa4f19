"""One plain process on this machine: a script that needs no other, or that starts its ranks itself."""

from __future__ import annotations

from collections.abc import Mapping

from stash.measure.launch.engines.base import Asked, Cluster, CommandLine, Machine, plain, ranks_here
from stash.measure.launch.job import Job


class Local:
    """In charge where nobody else is."""

    def cluster(self, asked: Asked, machine: Machine, environment: Mapping[str, str]) -> Cluster | None:
        return Cluster(nproc=ranks_here(asked, machine, environment), engine="local")

    def command(self, job: Job, cluster: Cluster) -> CommandLine:
        return plain(job)
