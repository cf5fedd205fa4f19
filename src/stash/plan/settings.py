"""How a job may be run on a device: batches that fit, steps of the whole, and the profile nearest to it.

A policy says what more devices do to a step, and the profile how many samples one trains now. How many more samples a
larger batch needs to learn as much is not counted. A *shape* is all that time depends on before links do: devices,
their number, batch and passes; types of one shape share it. Nothing here knows how long a step takes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stash.analysis.step_times import count_readers
from stash.catalog.facts import Instance
from stash.catalog.machines import is_called
from stash.catalog.offers import Catalog, has_gpu
from stash.core.errors import UserError
from stash.plan.candidates import Rentable
from stash.plan.records import Goal
from stash.predict.changes import AS_IT_IS, Alteration
from stash.predict.cluster import NodeTransport, Target, transport_used
from stash.predict.cluster_sources import target_of_instance
from stash.predict.draws import Array
from stash.predict.memory import RESERVE, holds_shards, job_footprint
from stash.predict.passes import Base, Passes, recording_hint, why_replicas_split

PROFILED = 40.0
"""Seconds that a short profile takes."""
_SMALLER = 0.01
"""Of a device's samples: less than this is a rounding of the profiled batch, and no other one."""


@dataclass(frozen=True)
class StepPlan:
    """What a step trains, by the goal's policy."""

    goal: Goal
    per_device: int
    """Samples of a device in a step, as profiled: of all its passes."""
    together: float
    """Samples of a step of the whole job, as profiled."""
    replicas: float
    """Of a device; below 1 where several share a replica of the model."""

    def device_samples(self, devices: int) -> int | None:
        """Samples of each of ``devices`` in a step; ``None`` where a global batch cannot be shared out evenly."""
        if self.goal.scaling == "per device":
            return self.per_device
        share = self.together / (devices * self.replicas)
        whole = round(share)
        return whole if whole >= 1 and abs(share - whole) <= _SMALLER * share / devices else None

    def samples(self, devices: int, of_device: int) -> float:
        """Samples of a step of the whole job."""
        return of_device * devices * self.replicas

    def steps(self, samples_per_step: float) -> float:
        """Optimizer steps of the whole training: its samples by those of a step."""
        # What divides evenly must not become a step more by its last bit.
        return float(math.ceil(self.goal.work.samples / samples_per_step * (1 - 1e-12)))


def step_plan(bases: Sequence[Base], goal: Goal, names: Sequence[str] = ()) -> StepPlan:
    """How ``goal`` is trained, from the first profile; raises UserError if they are of different jobs.

    That error has the first two that differ by their ``names``; machines and ranks may differ.
    """
    first = bases[0]
    for other, name in zip(bases[1:], names[1:] or [""] * len(bases[1:]), strict=True):
        for about, value in _essentials(first).items():
            another = _essentials(other)[about]
            if value is not None and another is not None and value != another:
                which = f"{names[0]} and {name}" if names else "these profiles"
                raise UserError(
                    f"{which} are different jobs, in {about} ({value} and {another}); recommend for one of them"
                )
    samples = first.breakdown.samples_per_step
    if first.passes is None or not samples:
        raise UserError(
            f"the samples of a step of this job were not counted; {recording_hint(first.profile)}"
        )
    return StepPlan(goal, first.passes.samples, samples, count_readers(first.profile, 1))


def _essentials(base: Base) -> Mapping[str, str | None]:
    """What distinguishes jobs."""
    workload = base.profile.workload
    return {
        "workload": workload.name,
        "parameters": None if workload.parameters is None else f"{workload.parameters:,}",
        "precision": workload.precision,
        "samples of a device and step": None if base.passes is None else f"{base.passes.samples:,}",
    }


def split_batch(of_device: int, largest: int) -> tuple[int, int]:
    """Batch and passes whose product is ``of_device``: the largest batch that fits, up to ``largest``, 1 or more.

    Of all ways to cut a device's samples into k equal passes this is the fastest by the mean. Compute takes k passes
    of (batch/k)ᵞ, so k^(1−γ) times that of one, and E[k^(1−γ)] >= k^(1−E[γ]) >= 1 (Jensen) as γ is 1 at most
    (``compute_ratios.batch_exponent``); a step's samples, its exchange and what its loaders make of them stay as
    they are.
    """
    passes = next(
        each
        for each in range(1, of_device + 1)
        if of_device % each == 0 and of_device // each <= largest
    )
    return of_device // passes, passes


def policy_notes(plan: StepPlan) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the policy takes for granted, and what to be warned of: sentences."""
    goal = plan.goal
    if goal.scaling == "per device":
        policy = f"every device trains {plan.per_device:,} samples a step as profiled, so more of them train more"
    else:
        policy = f"all devices together train {plan.together:,.0f} samples a step as profiled, however many there are"
    if goal.scaling == "global":
        return (policy,), ()
    warning = (
        "time per epoch is not time to accuracy: a larger batch may need more samples to learn as much, and none "
        "are added"
    )
    return (policy,), (warning,)


# Shapes: batches and passes that fit, on each node count

_ROUNDING = 1e-3
"""Published memory sizes have four digits."""


@dataclass(frozen=True, eq=False)
class Shape:
    """One way of running the job on nodes of so many devices; arrays are ``[node counts]``, ascending."""

    base: Base
    device: str | None
    devices: int
    batch: int
    accumulate: int
    nodes: NDArray[np.int64]
    steps: Array
    """Of the whole training."""
    samples: Array
    """Of a step."""

    @cached_property
    def ranks(self) -> NDArray[np.int64]:
        return self.nodes * self.devices

    @cached_property
    def doubts(self) -> Array:
        """What a step of as much compute as profiled is off by: seconds, ``[node counts, draws]``."""
        base, measured = self.base, self.base.target
        before = np.where(self.nodes == 1, measured.devices, measured.ranks)
        pairs = zip(before.tolist(), self.ranks.tolist(), strict=True)
        return np.array([base.exchange.more_ranks.doubt(*pair) for pair in pairs])

    @cached_property
    def compute(self) -> float:
        """Of a pass, in times of the profiled one; raises UserError where nothing is known of the device's speed."""
        base = self.base
        if self.device == base.target.device and self.alteration.batch is None:
            return 1.0
        update = {"device": self.device, "machine": None, "cores": None}
        target = base.target.model_copy(update=update)
        return base.compute_scale(target, Passes(self.batch, self.accumulate)).mean

    @cached_property
    def alteration(self) -> Alteration:
        """Its batch and passes, as far as they are not as profiled."""
        before = self.base.passes
        assert before is not None, "a step's samples are counted"
        return AS_IT_IS.replace_facts(
            batch=None if self.batch == before.batch else self.batch,
            accumulate=None if self.accumulate == before.accumulated else self.accumulate,
        )


@dataclass(frozen=True)
class Room:
    """Whether batches fit into a device's memory."""

    largest: int | None
    """Batch that fits; ``None`` where unknown."""
    why: str = ""
    """Why nothing fits, or that it is unknown; a clause."""


def find_room(base: Base, rentable: Rentable) -> Room:
    """The largest batch on this type's devices.

    Without a measured peak, a batch is taken to fit where it was profiled, and in any memory as large as that.
    """
    line = job_footprint(base, ranks=rentable.devices * rentable.most_nodes)
    memory = rentable.device_memory_bytes
    if rentable.device is None or base.passes is None:
        return Room(None if base.passes is None else base.passes.batch)
    if line is None:
        own = base.target.device_memory_bytes
        if own is None or (memory is not None and memory >= own.value * (1 - _ROUNDING)):
            return Room(base.passes.batch)
        return Room(
            None,
            "what a step needs of a device's memory is in no profile; profile again with this Stash",
        )
    if memory is None:
        return Room(None, "its GPUs' memory is unknown")
    largest = line.largest_batch(memory)
    if largest < 1:
        needed = line.bytes_at(1) / (1 - RESERVE)
        return Room(
            0, f"a single sample needs {needed / 2**30:,.1f} GiB of its {memory / 2**30:,.0f} GiB"
        )
    return Room(largest)


def why_not_divisible(base: Base, rentable: Rentable, nodes: int) -> str | None:
    """Why the job's model cannot be divided among so many nodes; ``None``: it can."""
    ranks, was = nodes * rentable.devices, base.target.ranks
    if not holds_shards(base, ranks, rentable.device_memory_bytes):
        return f"the job shards its model over {was} ranks, and whether parts for {ranks} fit into memory is unknown"
    return why_replicas_split(base, nodes, rentable.devices)


def find_shapes(rentable: Rentable, base: Base, plan: StepPlan, largest: int) -> tuple[Shape, ...]:
    """One for each batch that its node counts ask for, none above ``largest``."""
    by_split: dict[tuple[int, int], list[int]] = {}
    for nodes in range(1, rentable.most_nodes + 1):
        of_device = plan.device_samples(nodes * rentable.devices)
        if of_device is not None and why_not_divisible(base, rentable, nodes) is None:
            by_split.setdefault(split_batch(of_device, largest), []).append(nodes)
    shapes = []
    for (batch, passes), counts in by_split.items():
        samples = [plan.samples(count * rentable.devices, batch * passes) for count in counts]
        steps = np.array([plan.steps(each) for each in samples])
        nodes_of = np.array(counts, dtype=np.int64)
        device, devices = rentable.device, rentable.devices
        shapes.append(
            Shape(base, device, devices, batch, passes, nodes_of, steps, np.array(samples))
        )
    return tuple(shapes)


# The nearest profile


def nearest_profile(bases: Sequence[Base], rentable: Rentable) -> Base:
    """Which of the profiles speaks for a machine.

    The same instance type first, then the same device, then the least doubt about the device's speed, then the
    profile of most nodes, as its network holds predictions of others.
    """
    if len(bases) == 1:
        return bases[0]

    def distance(base: Base) -> tuple[bool, bool, float, int]:
        is_same, device = is_profiled_on(base, rentable.instance), rentable.device
        nodes = base.profile.nodes
        return not is_same, base.target.device != device, _speed_doubt(base, device), -nodes

    return min(bases, key=distance)


def _speed_doubt(base: Base, device: str | None) -> float:
    """Relative spread of the device's speed over the profiled one's; infinite where nothing is known of it."""
    if device == base.target.device:
        return 0.0
    target = Target(name="", nodes=1, devices=1, backend=base.target.backend, device=device)
    try:
        scale = base.compute_scale(target, base.passes)
    except UserError:
        return math.inf
    return float(np.std(scale.factor) / scale.mean)


def is_profiled_on(base: Base, instance: Instance, all_devices: bool = True) -> bool:
    """Whether the profile was taken on this type, and with all of its GPUs; on CPUs with any number of ranks."""
    host = base.profile.hosts[0] if base.profile.hosts else None
    if (
        host is None
        or host.instance is None
        or not is_called(instance.name, instance.cloud, host.instance)
    ):
        return False
    if host.instance.lower() != instance.name.lower():  # that leaves its GPUs out
        device = base.target.device
        if (
            len(host.gpus) != instance.gpu_count
            or device is None
            or has_gpu(instance, device) is False
        ):
            return False
    same_cloud = host.cloud is None or host.cloud.lower() == instance.cloud.lower()
    return same_cloud and (
        not all_devices or base.target.device is None or base.target.devices == instance.devices
    )


def measured_machines(
    bases: Sequence[Base], catalog: Catalog, transport: NodeTransport | None = None
) -> dict[str, Target]:
    """One node of each type that was profiled, by name: as measured, and of the data sheet what was not."""
    machines: dict[str, Target] = {}
    for all_devices in (True, False):
        for base in bases:
            for instance in catalog.instances:
                if is_profiled_on(base, instance, all_devices):
                    sheet = target_of_instance(
                        instance, 1, transport or transport_used(base.target.network)
                    )
                    if (base.target.device is None) is (sheet.device is None):
                        completed = base.target.complete_from(sheet).model_copy(update={"nodes": 1})
                        machines.setdefault(instance.name, completed)
    return machines


def add_machines(base: Base, catalog: Catalog, machines: dict[str, Target]) -> Base:
    """The same base with this catalog, and with machines that clusters are made of by ``cloud/name``."""
    return replace(
        base, catalog=lambda: catalog, clusters=lambda name: machines[name.partition("/")[2]]
    )
