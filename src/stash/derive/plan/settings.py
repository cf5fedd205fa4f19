"""How a job may be run on a kind of device: the batches and passes that fit into its memory, on each node count.

A *shape* is all that time depends on before links do: devices, their number, batch and passes. Types of one shape
share it. Knows sizes and counts; nothing of prices, links or seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stash.derive.plan.candidates import Rentable
from stash.derive.plan.work import StepPlan, split
from stash.derive.predict.answers.memory import RESERVE, job_footprint
from stash.derive.predict.uncertainty.draws import Array
from stash.derive.predict.whatif.base import Base
from stash.derive.predict.whatif.changes import Alteration

_ROUNDING = 1e-3
"""Published memory sizes have four digits."""


@dataclass(frozen=True)
class ShapeKey:
    """What tells shapes apart."""

    base: int
    """Which of the profiles it is forecast from."""
    device: str | None
    devices: int
    batch: int
    accumulate: int
    most_nodes: int


@dataclass(frozen=True, eq=False)
class Shape:
    """One way of running the job on nodes of so many devices; arrays are ``[node counts]``, ascending."""

    key: ShapeKey
    base: Base
    nodes: NDArray[np.int64]
    steps: Array
    """Of the whole training."""
    samples: Array
    """Of a step."""

    @property
    def ranks(self) -> NDArray[np.int64]:
        return self.nodes * self.key.devices


@dataclass(frozen=True)
class Room:
    """Whether batches fit into a device's memory."""

    largest: int | None
    """Batch that fits; ``None`` where nobody can tell."""
    why: str = ""
    """Why nothing fits, or nobody can tell; a clause."""


def room(base: Base, rentable: Rentable) -> Room:
    """The largest batch on this type's devices.

    Without a measured peak, a batch is taken to fit where it was profiled, and in any memory as large as that.
    """
    line = job_footprint(base, Alteration(), rentable.devices * rentable.most_nodes)
    memory = rentable.device_memory_bytes
    if rentable.device is None or base.passes is None:
        return Room(None if base.passes is None else base.passes.batch)
    if line is None:
        own = base.target.device_memory_bytes
        if own is None or (memory is not None and memory >= own.value * (1 - _ROUNDING)):
            return Room(base.passes.batch)
        return Room(None, "what a step needs of a device's memory is in no profile; profile again with this Stash")
    if memory is None:
        return Room(None, "its GPUs' memory is unknown")
    largest = line.largest_batch(memory)
    if largest < 1:
        needed = line.at(1) / (1 - RESERVE)
        return Room(0, f"a single sample needs {needed / 2**30:,.1f} GiB of its {memory / 2**30:,.0f} GiB")
    return Room(largest)


class Shapes:
    """Every shape that is asked for, made once."""

    def __init__(self, bases: Sequence[Base], plan: StepPlan) -> None:
        self._bases, self._plan = bases, plan
        self._known: dict[tuple[int, str | None, int, int, int], tuple[Shape, ...]] = {}

    def of(self, rentable: Rentable, base: int, largest: int) -> tuple[Shape, ...]:
        """One for each batch that its node counts ask for, none above ``largest``."""
        key = (base, rentable.device, rentable.devices, rentable.most_nodes, largest)
        if key not in self._known:
            self._known[key] = tuple(self._made(rentable, base, largest))
        return self._known[key]

    def _made(self, rentable: Rentable, base: int, largest: int) -> Iterator[Shape]:
        found: dict[tuple[int, int], list[int]] = {}
        for nodes in range(1, rentable.most_nodes + 1):
            of_device = self._plan.of_device(nodes * rentable.devices)
            if of_device is not None:
                found.setdefault(split(of_device, largest), []).append(nodes)
        for (batch, accumulated), counts in found.items():
            key = ShapeKey(base, rentable.device, rentable.devices, batch, accumulated, rentable.most_nodes)
            nodes_of = np.array(counts, dtype=np.int64)
            samples = [self._plan.samples(n * rentable.devices, batch * accumulated) for n in counts]
            steps = np.array([self._plan.steps(each) for each in samples])
            yield Shape(key, self._bases[base], nodes_of, steps, np.array(samples))
