"""Of several profiles of one job, the one that is nearest to a machine: its forecast has least to bring there.

The same instance type first, then the same device, then the least doubt about the device's speed, then the profile of
most nodes, as its network holds predictions of others. Knows machines; times no step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stash.base.errors import UserError
from stash.derive.plan.candidates import Rentable
from stash.derive.predict.target.cluster import Target
from stash.derive.predict.target.from_catalog import of_instance
from stash.derive.predict.whatif.base import Base
from stash.derive.predict.whatif.changes import Alteration
from stash.derive.predict.whatif.passes import compute_scale
from stash.keep.catalog import Catalog, Instance


class Nearest:
    """Profiles of one job, asked which of them speaks for a machine."""

    def __init__(self, bases: Sequence[Base], catalog: Catalog) -> None:
        self._bases, self._catalog = bases, catalog
        self._doubts: dict[tuple[int, str | None], float] = {}

    def to(self, rentable: Rentable) -> int:
        """Which of the profiles."""
        if len(self._bases) == 1:
            return 0
        return min(range(len(self._bases)), key=lambda number: self._distance(number, rentable))

    def _distance(self, number: int, rentable: Rentable) -> tuple[bool, bool, float, int]:
        base = self._bases[number]
        same = profiled_on(base, rentable.instance)
        return (
            not same,
            base.target.device != rentable.device,
            self._doubt(number, rentable.device),
            -base.profile.nodes,
        )

    def _doubt(self, number: int, device: str | None) -> float:
        """Relative spread of the device's speed beside the profiled one's; infinite where nothing is known of it."""
        if (number, device) not in self._doubts:
            self._doubts[number, device] = _doubt(self._bases[number], device, self._catalog)
        return self._doubts[number, device]


def _doubt(base: Base, device: str | None, catalog: Catalog) -> float:
    if device == base.target.device:
        return 0.0
    target = Target(name="", nodes=1, devices=1, backend=base.target.backend, device=device)
    try:
        scale = compute_scale(
            base.profile, base.target, target, Alteration(), base.passes, base.passes, base.draws, catalog
        )
    except UserError:
        return float("inf")
    return float(np.std(scale.factor) / np.mean(scale.factor))


def profiled_on(base: Base, instance: Instance, all_devices: bool = True) -> bool:
    """Whether the profile was taken on this type, and with all of its GPUs; on CPUs with any number of ranks."""
    host = base.profile.hosts[0] if base.profile.hosts else None
    if host is None or host.instance is None or host.instance.lower() != instance.name.lower():
        return False
    same_cloud = host.cloud is None or host.cloud.lower() == instance.cloud.lower()
    return same_cloud and (not all_devices or base.target.device is None or base.target.devices == instance.devices)


def measured_machines(bases: Sequence[Base], catalog: Catalog) -> dict[str, Target]:
    """One node of each type that was profiled, by name: as measured, and of the data sheet what was not."""
    found: dict[str, Target] = {}
    for all_devices in (True, False):
        for base in bases:
            names = {host.instance.lower() for host in base.profile.hosts if host.instance}
            for instance in catalog.instances:
                if instance.name.lower() in names and profiled_on(base, instance, all_devices):
                    sheet = of_instance(instance, 1)
                    if (base.target.device is None) is (sheet.device is None):
                        completed = base.target.completed_by(sheet).model_copy(update={"nodes": 1})
                        found.setdefault(instance.name, completed)
    return found


def with_machines(base: Base, catalog: Catalog, machines: dict[str, Target]) -> Base:
    """The same base with this catalog, and with machines that clusters are made of by ``cloud/name``."""
    return replace(base, catalog=lambda: catalog, clusters=lambda name: machines[name.partition("/")[2]])
