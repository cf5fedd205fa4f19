"""What scheduling speaks of: jobs, a cluster of typed GPUs, and the state of the jobs that are in it.

Plain frozen values and the arrays that policies compute on. Knows neither files nor policies. Time is in seconds
since the first job's submission unless a name says otherwise, rates are in steps per second, money is in dollars.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
WholeNumbers = NDArray[np.int64]
HOUR = 3600.0
YEAR_HOURS = 8760.0
DESCRIBED = "docs/how-to/schedule.md describes such files"
EVERYONE = "everyone"
"""Whose a job is where its queue does not say."""


@dataclass(frozen=True)
class QueuedJob:
    """One training job of a gang: all of its GPUs at once, or none."""

    name: str
    model: str
    """The row of the throughput matrix that it runs as."""
    gpus: int
    steps: float
    """Work in all."""
    submit: float = 0.0
    user: str = EVERYONE
    weight: float = 1.0
    deadline: float | None = None
    """The moment by which it has to be finished, on the clock of ``submit``."""
    done: float = 0.0
    """Steps that were done before."""
    on: str = ""
    """The GPU type that it runs on now; empty if it waits."""


@dataclass(frozen=True)
class ClusterNode:
    """One machine: GPUs of one type."""

    name: str
    gpu: str
    gpus: int
    cores: float | None = None
    network: float | None = None
    """Bytes per second."""


@dataclass(frozen=True)
class Costs:
    """What a cluster costs in dollars an hour, whether it is used or not; ``None`` where nothing was given."""

    by_type: Mapping[str, float]
    """Dollars per GPU and hour; types without a price are missing."""
    hourly: float | None = None
    """Of the whole cluster: machines, power and staff."""


@dataclass(frozen=True)
class LabCluster:
    """Machines, with GPU types in the order in which they were written."""

    nodes: tuple[ClusterNode, ...]
    costs: Costs = field(default_factory=lambda: Costs({}))
    name: str = "cluster"

    @cached_property
    def types(self) -> tuple[str, ...]:
        """GPU types, in order of first appearance."""
        return tuple(dict.fromkeys(node.gpu for node in self.nodes))

    @cached_property
    def counts(self) -> WholeNumbers:
        """GPUs of each type."""
        return np.array(
            [sum(node.gpus for node in self.nodes if node.gpu == kind) for kind in self.types]
        )

    @property
    def gpus(self) -> int:
        return int(self.counts.sum())

    def fewest_nodes(self, kind: str, gpus: int) -> int:
        """Nodes that a gang needs at least, if all were free; 0 where it does not fit at all."""
        left = gpus
        used = 0
        for size in sorted((node.gpus for node in self.nodes if node.gpu == kind), reverse=True):
            if left <= 0:
                break
            left = left - size
            used = used + 1
        return used if left <= 0 else 0

    def cost_per_gpu(self) -> Floats:
        """Dollars per GPU and hour by type; one dollar each where none was given, NaN where only others were."""
        known = self.costs.by_type
        if not known:
            return np.ones(len(self.types))
        return np.array([known.get(kind, np.nan) for kind in self.types])


@dataclass(frozen=True)
class JobDemand:
    """The jobs that a policy decides about, as arrays of one entry a job, in order of submission.

    ``rates[j, t]`` is what job j does on type t with the whole gang in its fewest nodes, 0 where it cannot run.
    """

    rates: Floats
    gpus: WholeNumbers
    weight: Floats
    left: Floats
    counts: WholeNumbers
    """GPUs of each type."""
    running: WholeNumbers
    """The type each job runs on now, −1 where it waits."""
    deadline: Floats
    """Seconds from now on; infinite where there is none."""
    costs: Floats
    """Dollars per GPU and hour, by type."""
    ids: WholeNumbers
    """A number that each job keeps."""

    def __len__(self) -> int:
        return len(self.gpus)

    @property
    def best(self) -> Floats:
        """Each job's rate on its fastest type."""
        return np.asarray(self.rates.max(axis=1), dtype=float)


@dataclass(frozen=True)
class ShareAllocation:
    """What a policy decided: ``x[j, t]`` is the share of time that job j has on type t."""

    x: Floats
    objective: float
    """In the policy's own unit; NaN where it maximises nothing."""
    type_prices: Floats | None = None
    """What one more GPU of each type brings, in the policy's ``gain``: the dual values of Σ s·x ≤ N.

    ``None`` without a linear program.
    """
    order: WholeNumbers | None = None
    """Of a queue: its jobs, the next one first."""
