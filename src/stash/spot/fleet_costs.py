"""What fleets take and cost, for many at once: equation (11) with what it forgets, constraints (12) to (14).

    C = (T + start) · (Σ n · p + servers)   with   T = j · Texp,   T + start ≤ Tobj,   0 ≤ n ≤ Lim   (1), (11)–(14)

A confidence p tightens the deadline: where ln T errs by σ, T · exp(z_p · σ) has to be in time. Also every fleet
within quotas, and the same machines on demand, which cost another price and are never revoked.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stash.api import Array
from stash.core.distributions import normal_probability, normal_quantile
from stash.core.errors import UserError
from stash.spot.fleet_records import CostedFleet, FleetPlan, FleetPool, WorkerType
from stash.spot.model.loss_curve import updates_to
from stash.spot.model.queueing import (
    FleetPace,
    asynchronous,
    count_fleets,
    network_of_pool,
    solve_exactly,
)

HOUR = 3600.0
LONGEST = 1e9
"""Seconds, thirty years: what takes longer is never in time, and its numbers mean nothing."""
_SAME = 1e-9
"""Relative: two sums of the same numbers in another order are not a broken limit."""


@dataclass(frozen=True)
class FleetWish:
    """What is wanted, of which machines."""

    pool: FleetPool
    loss: float
    deadline_seconds: float
    confidence: float | None = None

    @staticmethod
    def read_plan(plan: FleetPlan) -> FleetWish:
        """What a plan was made for."""
        return FleetWish(plan.pool, plan.loss, plan.deadline_seconds, plan.confidence)

    @property
    def fleet_count(self) -> int:
        """The number of fleets within the quotas, without the empty one."""
        return count_fleets([kind.quota for kind in self.pool.types]) - 1

    def hourly_dollars(self, counts: Array) -> Array:
        """$/h of fleets with all servers, ``counts`` [fleet, type]."""
        server = self.pool.server
        prices = np.array([kind.dollars_per_hour for kind in self.pool.types])
        dollars: Array = counts @ prices + server.count * server.dollars_per_hour
        return dollars

    @property
    def deviation(self) -> float | None:
        """σ of ln T; ``None`` if the pool does not say how wrong its numbers are."""
        sure = self.pool.uncertainty
        return None if sure is None else math.hypot(sure.speed, sure.updates)

    @property
    def training_seconds(self) -> float:
        """What T may be; below 0 where starting alone takes longer."""
        return (self.deadline_seconds - self.pool.start_seconds) / self.reserve

    @property
    def reserve(self) -> float:
        """What T is multiplied by to be in time as surely as is asked."""
        if self.confidence is None or self.deviation is None:
            return 1.0
        return math.exp(float(normal_quantile(self.confidence)) * self.deviation)


@dataclass(frozen=True)
class WeighedFleets:
    """Fleets, one entry each; infinite seconds and dollars where the loss model says nothing."""

    counts: Array
    """[fleet, type]."""
    progress: FleetPace
    updates: Array
    seconds: Array
    """With start-up."""
    dollars: Array
    feasible: npt.NDArray[np.bool_]

    @property
    def cheapest(self) -> int | None:
        """The cheapest one that does what is wanted; ``None`` if none does."""
        dollars = np.where(self.feasible, self.dollars, np.inf)
        at = int(np.argmin(dollars))
        return at if np.isfinite(dollars[at]) else None


MAX_FLEETS = 300_000
"""Weighed in less than a second, in less than 200 MB."""


def all_fleets(wish: FleetWish) -> WeighedFleets:
    """All within the quotas but the empty one; raises UserError if they are too many, or the pool contradicts itself."""
    pool = wish.pool
    network = network_of_pool(pool)
    if wish.fleet_count > MAX_FLEETS:
        raise UserError(
            f"the quotas allow {wish.fleet_count:,} fleets, and {MAX_FLEETS:,} are weighed at most; lower quotas "
            "with --quota TYPE=N"
        )
    found = solve_exactly([kind.quota for kind in pool.types], network)
    counts = found.counts[1:]
    samples = np.array([kind.samples for kind in pool.types])
    progress = asynchronous(counts, found.seconds[1:], samples)
    updates = updates_to(pool.loss, wish.loss, progress.mean_batch, counts.sum(axis=1))
    training = updates / progress.updates_per_second
    training = np.where(training < LONGEST, training, np.inf)
    whole = training + pool.start_seconds
    dollars = whole * wish.hourly_dollars(counts) / HOUR
    feasible = training <= wish.training_seconds * (1 + _SAME)
    return WeighedFleets(counts, progress, updates, whole, dollars, feasible)


def cost_fleet(wish: FleetWish, fleets: WeighedFleets, at: int) -> CostedFleet:
    """One of the ``fleets`` as a record. It must have a finite time."""
    seconds = float(fleets.seconds[at])
    pace = fleets.progress
    counts = {
        kind: int(count)
        for kind, count in zip(wish.pool.types, fleets.counts[at], strict=True)
        if count > 0
    }
    return CostedFleet(
        workers={kind.name: count for kind, count in counts.items()},
        updates=float(fleets.updates[at]),
        updates_per_second=float(pace.updates_per_second[at]),
        mean_batch=float(pace.mean_batch[at]),
        imbalance=float(pace.imbalance[at]),
        seconds=seconds,
        dollars=float(fleets.dollars[at]),
        p_deadline=_chance_in_time(wish, seconds),
        on_demand=tuple(kind.name for kind in counts if kind.is_on_demand),
    )


def _chance_in_time(wish: FleetWish, seconds: float) -> float | None:
    """P(start + T ≤ Tobj) where ln T is normal; ``None`` if the error of T is unstated."""
    if wish.deviation is None:
        return None
    start = wish.pool.start_seconds
    training = seconds - start
    left = wish.deadline_seconds - start
    if left <= 0:
        return 0.0
    if wish.deviation == 0:
        return float(training <= left * (1 + _SAME))
    return float(normal_probability(math.log(left / training) / wish.deviation))


# On demand


def make_on_demand(kind: WorkerType) -> WorkerType | None:
    """The type on demand; ``None`` where its price there is unknown."""
    if kind.is_on_demand or kind.on_demand_dollars_per_hour is None:
        return kind if kind.is_on_demand else None
    price = kind.on_demand_dollars_per_hour
    return kind.model_copy(update={"dollars_per_hour": price, "market": "on-demand"})


def rent_on_demand(pool: FleetPool, names: Collection[str]) -> FleetPool:
    """The pool with these of its types on demand, where what they cost there is known."""
    types = tuple(
        make_on_demand(kind) or kind if kind.name in names else kind for kind in pool.types
    )
    return pool.model_copy(update={"types": types})


def revocable_types(pool: FleetPool, workers: Collection[str]) -> tuple[str, ...]:
    """The fleet's types that can be revoked."""
    return tuple(kind.name for kind in pool.types if kind.name in workers and not kind.is_on_demand)
