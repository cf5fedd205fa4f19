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
PACKED, SPREAD = 0, -1
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
    prep: Mapping[str, float] = field(default_factory=dict)
    """Steps of one GPU's batch that one core prepares per second, by model."""

    def rate(self, model: str, gpus: int, kind: str, nodes: int) -> StepRate | None:
        """``None`` where it is unknown; of a number of nodes without a row, what any spreading does."""
        return self.rates.get((model, gpus, kind, nodes)) or (
            self.rates.get((model, gpus, kind, SPREAD)) if nodes > 1 else None
        )

    @property
    def models(self) -> tuple[tuple[str, int], ...]:
        """Model and GPUs, each once, in order."""
        return tuple(dict.fromkeys((model, gpus) for model, gpus, _, _ in self.rates))


def with_cores(steps_per_second: float, prep: float | None, cores_per_gpu: float | None) -> float:
    """What is left of a rate where cores prepare the batches: min(R, cores·prep), all GPUs of a step being fed alike.

    ``prep`` is batches of one GPU that one core prepares per second; a step takes one for each GPU, so cores per GPU
    times ``prep`` is the most. Loading and training overlap, so the slower of the two is the pace.
    """
    if prep is None or cores_per_gpu is None:
        return steps_per_second
    return min(steps_per_second, cores_per_gpu * prep)


class RateTable:
    """The matrix for some jobs on one cluster, as arrays: what policies and the simulator ask."""

    def __init__(self, jobs: Sequence[QueuedJob], cluster: LabCluster, matrix: RateMatrix) -> None:
        self.cluster, self.matrix = cluster, matrix
        kinds = list(dict.fromkeys((job.model, job.gpus, job.cores) for job in jobs))
        place = {kind: number for number, kind in enumerate(kinds)}
        self.kind: WholeNumbers = np.array([place[job.model, job.gpus, job.cores] for job in jobs], dtype=np.int64)
        self._spread: list[list[dict[int, float]]] = []
        self.fewest = [[cluster.fewest_nodes(gpu, gpus) for gpu in cluster.types] for _, gpus, _ in kinds]
        packed = np.zeros((len(kinds), len(cluster.types)))
        for number, (model, gpus, cores) in enumerate(kinds):
            self._spread.append([])
            for column, gpu in enumerate(cluster.types):
                few = self.fewest[number][column]
                own = self._cores(gpu) if cores is None else cores
                packed[number, column] = self._packed(model, gpus, gpu, few, own)
                self._spread[-1].append(self._rates(model, gpus, gpu, few, own))
        self.of_kind = packed
        self.packed: Floats = packed[self.kind]
        known = np.array([[max(each.values(), default=0.0) for each in spread] for spread in self._spread])
        self.over: Floats = np.where(np.array(self.fewest) > 1, np.maximum(known, packed), known)[self.kind]
        """The best rate of each job over several nodes of a type, 0 where none is known."""
        self.restart: Floats = np.array([matrix.restart.get(job.model, RESTART) for job in jobs])

    def _cores(self, gpu: str) -> float | None:
        known = [node.cores / node.gpus for node in self.cluster.nodes if node.gpu == gpu and node.cores is not None]
        return min(known) if known else None

    def _packed(self, model: str, gpus: int, gpu: str, few: int, cores: float | None) -> float:
        if not few:
            return 0.0
        known = self.matrix.rates.get((model, gpus, gpu, few)) or self.matrix.rates.get((model, gpus, gpu, PACKED))
        return 0.0 if known is None else with_cores(known.value, self.matrix.prep.get(model), cores)

    def _rates(self, model: str, gpus: int, gpu: str, few: int, cores: float | None) -> dict[int, float]:
        found = {}
        for nodes in range(few + 1, gpus + 1) if few else ():
            known = self.matrix.rate(model, gpus, gpu, nodes)
            if known is not None:
                found[nodes] = with_cores(known.value, self.matrix.prep.get(model), cores)
        return found

    def spread(self, job: int, kind: int, nodes: int) -> float | None:
        """The rate over that many nodes; ``None`` where it is unknown."""
        number = self.kind[job]
        if nodes <= self.fewest[number][kind]:
            return float(self.of_kind[number, kind])
        rates: dict[int, float] = self._spread[number][kind]
        return rates.get(nodes)


def demand_of(jobs: Sequence[QueuedJob], cluster: LabCluster, matrix: RateMatrix, now: float = 0.0) -> JobDemand:
    """The jobs that are there at ``now`` as a policy sees them, each with what it has done; others are left out."""
    table = RateTable(jobs, cluster, matrix)
    there = np.array([number for number, job in enumerate(jobs) if job.submit <= now and table.packed[number].any()],
                     dtype=np.int64)  # fmt: skip
    here = [jobs[number] for number in there]
    kinds = {kind: number for number, kind in enumerate(cluster.types)}
    rates = table.packed[there]
    return JobDemand(
        rates=rates,
        gpus=np.array([job.gpus for job in here], dtype=np.int64),
        weight=np.array([job.weight for job in here]),
        left=np.array([job.steps - job.done for job in here]),
        elapsed=np.array([now - job.submit for job in here]),
        counts=cluster.counts,
        isolated=np.zeros(len(here)),
        running=np.array([kinds.get(job.on, -1) for job in here], dtype=np.int64),
        deadline=np.array([np.inf if job.deadline is None else job.deadline - now for job in here]),
        costs=cluster.cost_per_gpu(),
        ids=there,
        model=table.kind[there],
    )
