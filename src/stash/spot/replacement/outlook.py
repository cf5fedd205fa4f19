"""What could be added to a fleet in the middle of training, and what it would then still take and cost.

A machine on demand trains as fast as a spot one of its type, costs its own price, and can be had while the type is
left alone on spot; a quota counts both together. Which addition is best ``replanning`` knows.

    left(F) = k · (j(Lobj; F) − j(loss now; F))          updates of fleet F by the curve; k: observed over predicted
    T = min(J, left(S) / X(S)) + (1 − J · X(S) / left(S))⁺ · left(F) / X(F)

S are the survivors, which are kept and train on until what is added joins, after J seconds; X are updates per second.
The model predicts X; what workers were seen to do corrects it. Many fleets at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from stash.predict.draws import Array
from stash.spot.choose.fleet_costs import HOUR, FleetWish
from stash.spot.model.convergence import updates_to
from stash.spot.model.queueing import FleetPace, asynchronous, exact, lattice, of_pool
from stash.spot.records.fleets import FleetPlan, FleetPool

Bools = npt.NDArray[np.bool_]
_NEVER = 1e9
"""Seconds until a type that is planned on demand is asked for on spot: longer than any training."""
_TELLING = 0.05
"""Share of all updates by the curve after which what was observed tells how wrong the curve is."""


@dataclass(frozen=True, eq=False)
class MachineOffers:
    """How one more machine of each type could be had now: [type] each."""

    kept: Array
    """Machines that stay, of either kind."""
    spot: Array
    """$/h."""
    cooling: Array
    """Seconds until it is asked for on spot again; 0: at once."""
    on_demand: Array
    """$/h; infinite where unstated, or where it was refused lately."""

    @property
    def fixed(self) -> Bools:
        """Whether it is rented on demand: where spot machines cool down, or cost no less."""
        found: Bools = np.isfinite(self.on_demand) & ((self.cooling > 0) | (self.on_demand <= self.spot))
        return found

    @property
    def prices(self) -> Array:
        """$/h, as it is rented."""
        return np.where(self.fixed, self.on_demand, self.spot)

    @property
    def dearer(self) -> Bools:
        """Whether it is rented on demand although a spot machine costs less."""
        found: Bools = self.fixed & (self.on_demand > self.spot)
        return found


def offers_of(
    pool: FleetPool, kept: Mapping[str, int], cooling: Mapping[str, float], refused: Mapping[str, float]
) -> MachineOffers:
    """``cooling`` on spot and ``refused`` on demand: seconds until a type is asked for again."""
    named = [(kind.name, kind.on_demand_price) for kind in pool.types]
    return MachineOffers(
        kept=np.array([float(kept.get(name, 0)) for name, _ in named]),
        spot=np.array([kind.dollars_per_hour for kind in pool.types]),
        cooling=np.array([_NEVER if kind.fixed else max(cooling.get(kind.name, 0.0), 0.0) for kind in pool.types]),
        on_demand=np.array([price if price and refused.get(name, 0.0) <= 0 else math.inf for name, price in named]),
    )


def additions(pool: FleetPool, offers: MachineOffers) -> Array:
    """All that could be added now within the quotas: [fleet, type]; the first adds nothing."""
    room = np.maximum(np.array([float(kind.quota) for kind in pool.types]) - offers.kept, 0.0)
    room[(offers.cooling > 0) & ~offers.fixed] = 0
    return lattice(room.astype(int).tolist())


@dataclass(frozen=True, kw_only=True)
class FleetState:
    """A training in the middle, as it was seen."""

    workers: Mapping[str, int]
    """Who stays, of either kind, by type; those that are about to join too."""
    seconds_left: float
    """Until the deadline: R."""
    join_seconds: float
    """From asking for a machine to its first update, measured or else the pool's: J, or d."""
    cooling: Mapping[str, float] = field(default_factory=dict)
    """Seconds until spot machines of a type are asked for again: one was revoked, or refused."""
    refused: Mapping[str, float] = field(default_factory=dict)
    """The same on demand: one was lost, or refused."""


@dataclass(frozen=True, kw_only=True)
class FleetSituation(FleetState):
    """An asynchronous fleet."""

    updates: float
    """Done so far."""
    loss: float | None
    """Its running mean now; ``None``: not known yet."""
    dollars_left: float | None
    speeds: Mapping[str, float] = field(default_factory=dict)
    """Updates per second of one worker of a type, as observed; types that are not known are left out."""
    on_demand: Mapping[str, int] = field(default_factory=dict)
    """How many of ``workers`` are on demand."""


@dataclass(frozen=True, kw_only=True)
class GangSituation(FleetState):
    """A gang."""

    least: int
    """Nodes that can train."""
    work_seconds: float
    """C: left, of the whole gang."""


@dataclass(frozen=True, kw_only=True)
class RentDecision:
    """What to rent now."""

    add: Mapping[str, int]
    """Machines by type, on spot or as the type is planned."""
    add_on_demand: Mapping[str, int]
    why: str
    look_again_seconds: float | None
    """When to decide again though nothing happens: a type has cooled down that could be of use; ``None``: none is."""
    last_moment_seconds: float | None
    """Until when machines on demand would be in time, if no spot machine were to come; ``None``: they are not now."""


class FleetOutlook:
    """What survivors, the first of ``counts`` [fleet, type], can reach, and what they could with more."""

    def __init__(self, plan: FleetPlan, seen: FleetSituation, counts: Array) -> None:
        wish = FleetWish(plan.pool, plan.loss, max(seen.seconds_left, 0.0), plan.confidence)
        self._whole, present = np.full(len(counts), math.inf), counts.any(axis=1)
        if present.any():
            some = counts[present]
            pace = asynchronous(some, _iterations(plan.pool, some) / _corrections(plan.pool, seen), wish.samples)
            self._whole[present] = _left(plan, seen, pace, some.sum(axis=1)) / pace.updates_per_second
        self.trains = bool(np.isfinite(self._whole[0]))
        """Whether the survivors reach the loss by themselves, in whatever time."""
        caution = 1.0  # by how much the time left is taken shorter for the confidence of the plan
        if wish.confidence is not None and wish.deviation is not None:
            caution = math.exp(-float(ndtri(wish.confidence)) * wish.deviation)
        self._join, self.limit = seen.join_seconds, seen.seconds_left * caution
        self.money = math.inf if seen.dollars_left is None else seen.dollars_left
        self._hourly = wish.server_price + _hourly(plan, seen)
        self.fits = wish.within_vcpus(counts)
        self.fits[0] = True  # who is there stays

    def training(self, join: Array) -> Array:
        """T: seconds of each fleet that is complete after ``join`` seconds; infinite: it never reaches the loss."""
        alone = self._whole[0]  # what the survivors would take
        first = np.minimum(join, alone)
        undone = 1 - first / alone if alone > 0 else np.zeros_like(first)
        rest = np.zeros_like(first)
        np.multiply(undone, self._whole, out=rest, where=undone > 0)
        found: Array = first + rest
        return found

    def dollars(self, training: Array, added: Array) -> Array:
        """From now on, with so many $/h besides those of the survivors and the servers."""
        found = np.full_like(training, math.inf)
        np.multiply(training, (self._hourly + added) / HOUR, out=found, where=np.isfinite(training))
        return found

    def last_moment(self, extra: Array, prices: Array) -> float | None:
        """The last moment to ask for what is added on demand and be in time; ``None``: it is too late now.

        T = t(F) + J · (1 − t(F) / t(S)), where t is what a fleet takes by itself from now on. The money is what it
        would take if it was asked for now.
        """
        alone, known = self._whole[0], np.isfinite(prices)
        paid = self.dollars(self.training(np.full(len(extra), self._join)), extra @ np.where(known, prices, 0.0))
        helps = ~np.any(extra[:, ~known] > 0, axis=1) & self.fits & (paid <= self.money)
        helps &= self._whole < min(alone, self.limit)
        if not helps.any():
            return None
        whole = self._whole[helps]
        latest = float(((self.limit - whole) / (1 - whole / alone)).max()) - self._join
        return latest if latest >= 0 else None


def _hourly(plan: FleetPlan, seen: FleetSituation) -> float:
    """$/h of the survivors, each by its own kind."""
    return sum(
        (seen.workers.get(kind.name, 0) - seen.on_demand.get(kind.name, 0)) * kind.dollars_per_hour
        + seen.on_demand.get(kind.name, 0) * (kind.on_demand_price or kind.dollars_per_hour)
        for kind in plan.pool.types
    )


def _iterations(pool: FleetPool, counts: Array) -> Array:
    """Tᵢ, [fleet, type]."""
    return exact(counts.max(axis=0).astype(int).tolist(), of_pool(pool)).of(counts)


def _corrections(pool: FleetPool, seen: FleetSituation) -> Array:
    """Observed over predicted speed of each type; of types that were not seen, what the others have in common."""
    counts = np.array([[float(seen.workers.get(kind.name, 0)) for kind in pool.types]])
    predicted = 1 / _iterations(pool, counts)[0]
    known = {
        number: seen.speeds[kind.name] / predicted[number]
        for number, kind in enumerate(pool.types)
        if seen.speeds.get(kind.name, 0.0) > 0 and counts[0, number] > 0
    }
    if not known:
        return np.ones(len(pool.types))
    usual = math.exp(sum(map(math.log, known.values())) / len(known))
    return np.array([known.get(number, usual) for number in range(len(pool.types))])


def _left(plan: FleetPlan, seen: FleetSituation, pace: FleetPace, size: Array) -> Array:
    """Updates until the loss is reached, of each fleet; 0 if it is reached, infinite where the curve says nothing."""
    curve, loss = plan.pool.loss, seen.loss
    whole = updates_to(curve, plan.loss, pace.mean_batch, pace.imbalance, size)
    if loss is None or loss <= curve.gamma5:  # nothing seen yet, or what the curve holds to be impossible
        return np.maximum(whole - seen.updates, 1.0)
    if loss <= plan.loss:
        return np.zeros_like(whole)
    done = updates_to(curve, loss, pace.mean_batch, pace.imbalance, size)
    return np.where(np.isfinite(whole), (whole - done) * _slowness(plan, seen, loss), np.inf)


def _slowness(plan: FleetPlan, seen: FleetSituation, loss: float) -> float:
    """k: updates that the loss took over those that the curve says; 1 while that tells little."""
    if plan.chosen is None or loss <= plan.loss:
        return 1.0
    fleet = plan.chosen
    size = float(sum(fleet.workers.values()))
    expected = updates_to(plan.pool.loss, loss, np.array(fleet.mean_batch), np.array(fleet.imbalance), np.array(size))
    share = float(expected) / fleet.updates
    return seen.updates / float(expected) if _TELLING < share < 1 and seen.updates > 0 else 1.0
