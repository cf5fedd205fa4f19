"""One plain process on this machine, as ``python script.py`` starts it: nothing is added that was not typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stash.measure.launch.engines.base import Asked, Cluster, CommandLine, Machine, plain, ranks_here
from stash.measure.launch.job import Job


class Local:
    """In charge where nobody else is."""

    def cluster(self, asked: Asked, machine: Machine, environment: Mapping[str, str]) -> Cluster | None:
        one = ranks_here(asked, machine, environment)
        return Cluster(one, engine="local", all_devices=ranks_here(replace(asked, ranks=True), machine, environment))

    def command(self, job: Job, cluster: Cluster) -> CommandLine:
        return plain(job)
