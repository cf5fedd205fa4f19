"""What fleets take and cost, for many at once: equation (11) with what it forgets, constraints (12) to (14).

    C = (T + start) · (Σ n · p + servers)   with   T = j · Texp,   T + start ≤ Tobj,   0 ≤ n ≤ Lim   (1), (11)–(14)

A confidence p tightens the deadline: where ln T errs by σ, T · exp(z_p · σ) has to be in time. Also every fleet
within quotas, and the same machines on demand, which cost another price and are never revoked.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

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
    seconds_of,
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

    @cached_property
    def prices(self) -> Array:
        """$/h of each type: [type]."""
        return np.array([kind.dollars_per_hour for kind in self.pool.types])

    @cached_property
    def samples(self) -> Array:
        """bᵢ: [type]."""
        return np.array([kind.samples for kind in self.pool.types])

    @cached_property
    def quotas(self) -> list[int]:
        return [kind.quota for kind in self.pool.types]

    @property
    def fleet_count(self) -> int:
        """The number of fleets within the quotas, without the empty one."""
        return count_fleets(self.quotas) - 1

    @property
    def server_price(self) -> float:
        """$/h of all servers."""
        return self.pool.server.count * self.pool.server.dollars_per_hour

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


def check_wish(wish: FleetWish) -> FleetWish:
    """``wish``, or a UserError that says which of its numbers contradict each other."""
    pool = wish.pool
    if wish.confidence is not None and wish.deviation is None:
        raise UserError(
            f"--confidence {wish.confidence:g}: the pool does not say how wrong its numbers are; add to it "
            "uncertainty: {speed: 0.05, updates: 0.1}"
        )
    network_of_pool(pool)
    return wish


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


def weigh(wish: FleetWish, counts: Array, seconds: Array | None = None) -> WeighedFleets:
    """Time, cost and feasibility of fleets, ``counts`` [fleet, type]; ``seconds`` of iterations as long if known."""
    pool, size = wish.pool, counts.sum(axis=1)
    if seconds is None:
        seconds = seconds_of(pool, counts)
    progress = asynchronous(counts, seconds, wish.samples)
    updates = updates_to(pool.loss, wish.loss, progress.mean_batch, size)
    training = updates / progress.updates_per_second
    training = np.where(training < LONGEST, training, np.inf)
    whole = training + pool.start_seconds
    dollars = whole * (counts @ wish.prices + wish.server_price) / HOUR
    feasible = training <= wish.training_seconds * (1 + _SAME)
    feasible &= (counts <= np.array(wish.quotas)).all(axis=1)
    return WeighedFleets(counts, progress, updates, whole, dollars, feasible)


def chance_in_time(wish: FleetWish, seconds: float) -> float | None:
    """P(start + T ≤ Tobj) where ln T is normal; ``None`` if the error of T is unstated."""
    if wish.deviation is None:
        return None
    training, left = (
        seconds - wish.pool.start_seconds,
        wish.deadline_seconds - wish.pool.start_seconds,
    )
    if left <= 0:
        return 0.0
    if wish.deviation == 0:
        return float(training <= left * (1 + _SAME))
    return float(normal_probability(math.log(left / training) / wish.deviation))


def cost_fleet(wish: FleetWish, counts: Array) -> CostedFleet:
    """One fleet as a record; ``counts`` is [type]. It must have a finite time."""
    found = weigh(wish, counts[None, :].astype(float))
    seconds = float(found.seconds[0])
    return CostedFleet(
        workers={
            kind.name: int(n) for kind, n in zip(wish.pool.types, counts, strict=True) if n > 0
        },
        updates=float(found.updates[0]),
        updates_per_second=float(found.progress.updates_per_second[0]),
        mean_batch=float(found.progress.mean_batch[0]),
        imbalance=float(found.progress.imbalance[0]),
        seconds=seconds,
        dollars=float(found.dollars[0]),
        p_deadline=chance_in_time(wish, seconds),
        on_demand=tuple(
            kind.name
            for kind, n in zip(wish.pool.types, counts, strict=True)
            if n > 0 and kind.is_on_demand
        ),
    )


# On demand


def make_on_demand(kind: WorkerType) -> WorkerType | None:
    """The type on demand; ``None`` where its price there is unknown."""
    price = kind.dollars_on_demand
    return (
        None
        if price is None
        else kind.model_copy(update={"dollars_per_hour": price, "market": "on-demand"})
    )


def rent_on_demand(pool: FleetPool, names: Collection[str]) -> FleetPool:
    """The pool with these of its types on demand, where what they cost there is known."""
    types = tuple(
        make_on_demand(kind) or kind if kind.name in names else kind for kind in pool.types
    )
    return pool.model_copy(update={"types": types})


def revocable_types(pool: FleetPool, workers: Collection[str]) -> tuple[str, ...]:
    """The fleet's types that can be revoked."""
    return tuple(kind.name for kind in pool.types if kind.name in workers and not kind.is_on_demand)


# Enumeration

MAX_FLEETS = 300_000
"""Weighed in less than a second, in less than 200 MB."""


def all_fleets(wish: FleetWish) -> WeighedFleets:
    """All within the quotas but the empty one; the caller has checked that ``fleet_count`` is 1 to ``MAX_FLEETS``."""
    found = solve_exactly(wish.quotas, network_of_pool(wish.pool))
    return weigh(wish, found.counts[1:], found.seconds[1:])
