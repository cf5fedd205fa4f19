"""One question: every candidate that constraints leave, each in a chain, with the profile that speaks for it.

Made anew for other constraints, as when nothing is feasible: forecasts are shared between the two. Knows what is
weighed; which of it is best is for ``search``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np

from stash.base.errors import UserError
from stash.base.plan import Constraints, Unranked
from stash.derive.plan.bill import BillFacts
from stash.derive.plan.bounds import Floors
from stash.derive.plan.candidates import Market, Rentable, market
from stash.derive.plan.nearest import Nearest, measured_machines, profiled_on, with_machines
from stash.derive.plan.settings import Shapes, room
from stash.derive.plan.weighing import WHOLE, Calibration, Chain, Weighing
from stash.derive.plan.work import StepPlan
from stash.derive.predict.target.cluster import Target
from stash.derive.predict.whatif.base import Base
from stash.keep.catalog import Catalog

_FROM_CPUS = (
    "the job was profiled on CPUs, and neither the speed of a GPU nor that of other CPUs follows from that; profile "
    "it there, or once on any GPU: `stash profile`"
)


@dataclass(frozen=True)
class Field:
    """What is weighed under some constraints."""

    market: Market
    chains: tuple[Chain, ...]
    unranked: tuple[Unranked, ...]

    @property
    def weighed(self) -> int:
        """Combinations of offer, nodes and setting."""
        return sum(len(chain.shape.nodes) * chain.rentable.offers for chain in self.chains)

    @property
    def pruned(self) -> int:
        """Of those, so far: dearer offers of the same machines, and what bounds kept from being billed."""
        found = 0
        for chain in self.chains:
            found += (chain.rentable.offers - 1) * len(chain.shape.nodes)
            found += int(np.count_nonzero(np.isfinite(chain.least.seconds) & (chain.stage < WHOLE)))
        return found

    def types(self) -> dict[str, list[Chain]]:
        """Chains by ``cloud/name``."""
        found: dict[str, list[Chain]] = {}
        for chain in self.chains:
            found.setdefault(chain.rentable.key, []).append(chain)
        return found


class RentalQuestion:
    """What is asked, whatever may be rented for it."""

    def __init__(
        self,
        bases: Sequence[Base],
        plan: StepPlan,
        catalog: Catalog,
        facts: BillFacts,
        machines: Mapping[str, Target],
        now: date,
        calibrate: Calibration | None = None,
    ) -> None:
        self._given, self._now = frozenset(machines), now
        self._machines = {**measured_machines(bases, catalog), **machines}
        self.bases = tuple(with_machines(base, catalog, self._machines) for base in bases)
        self._catalog = catalog
        self._nearest = Nearest(self.bases, catalog)
        self._shapes = Shapes(self.bases, plan)
        floors = Floors(self.bases, catalog, plan.goal.confidence)
        self.weighing = Weighing(plan.goal, facts, floors, self.bases, calibrate)

    def field(self, constraints: Constraints) -> Field:
        """Every candidate; raises UserError if there is none."""
        left = market(self._catalog, constraints, self._machines, self._now)
        chains: list[Chain] = []
        unranked = list(left.unranked)
        for rentable in left.rentables:
            if rentable.device is None and self.bases[0].target.device is not None:
                continue  # a job of GPUs, and a machine without
            try:
                chains += self._chains(rentable)
            except UserError as error:
                unranked.append(_unranked(rentable, str(error)))
        if not chains:
            why = f"{unranked[-1].instance}: {unranked[-1].why}" if unranked else "none of it has a GPU"
            raise UserError(f"nothing that may be rented can be forecast: {why}")
        return Field(left, tuple(chains), tuple(unranked))

    def _chains(self, rentable: Rentable) -> list[Chain]:
        number = self._nearest.to(rentable)
        own = rentable.instance.name not in self._given and profiled_on(self.bases[number], rentable.instance)
        if self.bases[number].target.device is None and rentable.machine is None:
            raise UserError(_FROM_CPUS)
        fits = room(self.bases[number], rentable)
        if not fits.largest:
            raise UserError(fits.why)
        shapes = self._shapes.of(rentable, number, fits.largest)
        if not shapes:
            raise UserError(
                "no number of its devices shares out the batch evenly in parts that fit into their memory"
            )
        return [self.weighing.chain(rentable, shape, own) for shape in shapes]


def _unranked(rentable: Rentable, why: str) -> Unranked:
    return Unranked(instance=rentable.instance.name, cloud=rentable.instance.cloud, why=why)
