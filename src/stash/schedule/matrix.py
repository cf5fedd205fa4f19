"""The throughput matrix R[model and GPUs, GPU type, nodes]: steps per second, with where each number comes from.

Packed means the fewest nodes of the cluster that hold the gang; spread over n nodes is a row of its own, so that the
difference of two rows is the network stall. Knows no files and no profiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from stash.schedule.records import Floats, JobDemand, LabCluster, QueuedJob, WholeNumbers

RateOrigin = Literal["measured", "forecast", "data sheet", "given"]
PACKED = 0
SPREAD = -1
"""Instead of a number of nodes: as few as the gang fits into, and any more than that."""
RESTART = 45.0
"""Seconds from the order to stop a job to its first step elsewhere, where no profile says."""


@dataclass(frozen=True)
class StepRate:
    """Steps per second; 0 says that the job does not run there. The ends are those of a 95 % interval."""

    value: float
    low: float | None = None
    high: float | None = None
    origin: RateOrigin = "given"


RateKey = tuple[str, int, str, int]
"""Model, GPUs, GPU type, and nodes: a number, ``PACKED`` or ``SPREAD``."""


@dataclass(frozen=True)
class RateMatrix:
    """All rates that are known."""

    rates: Mapping[RateKey, StepRate]
    restart: Mapping[str, float] = field(default_factory=dict)
    """Seconds that stopping a model and starting it again costs: save, fetch and warm-up."""

    def packed_rate(self, model: str, gpus: int, kind: str, few: int) -> StepRate | None:
        """On the ``few`` nodes that hold the gang; ``None`` where it is unknown."""
        return self.rates.get((model, gpus, kind, few)) or self.rates.get(
            (model, gpus, kind, PACKED)
        )

    def rate(self, model: str, gpus: int, kind: str, nodes: int) -> StepRate | None:
        """``None`` where it is unknown; of a number of nodes without a row, what any spreading does."""
        return self.rates.get((model, gpus, kind, nodes)) or (
            self.rates.get((model, gpus, kind, SPREAD)) if nodes > 1 else None
        )


class RateTable:
    """The matrix for some jobs on one cluster: what policies and the simulator ask."""

    def __init__(self, jobs: Sequence[QueuedJob], cluster: LabCluster, matrix: RateMatrix) -> None:
        self._jobs = jobs
        self._types = cluster.types
        self._matrix = matrix
        self._fewest = {
            (gpus, gpu): cluster.fewest_nodes(gpu, gpus)
            for gpus in {job.gpus for job in jobs}
            for gpu in cluster.types
        }
        rows: dict[tuple[str, int], list[float]] = {}
        for model, gpus in {(job.model, job.gpus) for job in jobs}:
            fewest = [(gpu, self._fewest[gpus, gpu]) for gpu in cluster.types]
            known = [few and matrix.packed_rate(model, gpus, gpu, few) for gpu, few in fewest]
            rows[model, gpus] = [rate.value if rate else 0.0 for rate in known]
        self.packed: Floats = np.array([rows[job.model, job.gpus] for job in jobs])
        self.restart: Floats = np.array([matrix.restart.get(job.model, RESTART) for job in jobs])

    def spread(self, job: int, kind: int, nodes: int) -> float | None:
        """The rate over that many nodes; ``None`` where it is unknown."""
        one = self._jobs[job]
        gpu = self._types[kind]
        if nodes <= self._fewest[one.gpus, gpu]:
            return float(self.packed[job, kind])
        known = self._matrix.rate(one.model, one.gpus, gpu, nodes)
        return None if known is None else known.value


def demand_of(
    jobs: Sequence[QueuedJob], cluster: LabCluster, matrix: RateMatrix, now: float = 0.0
) -> JobDemand:
    """The jobs that are there at ``now`` as a policy sees them, each with what it has done; others are left out."""
    table = RateTable(jobs, cluster, matrix)
    there = [
        number
        for number, job in enumerate(jobs)
        if job.submit <= now and table.packed[number].any()
    ]
    return make_demand(jobs, cluster, table, np.array(there, dtype=np.int64), now)


def make_demand(
    jobs: Sequence[QueuedJob],
    cluster: LabCluster,
    table: RateTable,
    ids: WholeNumbers,
    now: float,
) -> JobDemand:
    """The jobs of these numbers, with what was done and is held as their records say."""
    here = [jobs[number] for number in ids]
    kinds = {kind: number for number, kind in enumerate(cluster.types)}
    return JobDemand(
        rates=table.packed[ids],
        gpus=np.array([job.gpus for job in here], dtype=np.int64),
        weight=np.array([job.weight for job in here]),
        left=np.array([job.steps - job.done for job in here]),
        counts=cluster.counts,
        running=np.array([kinds.get(job.on, -1) for job in here], dtype=np.int64),
        deadline=np.array([np.inf if job.deadline is None else job.deadline - now for job in here]),
        costs=cluster.cost_per_gpu(),
        ids=ids,
    )
